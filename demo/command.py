"""The command line of the demos: options, a temporary folder, and the exit status."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

from rich.console import Console

from demo.processes import run_until_done

Run = Callable[[argparse.Namespace, Path, Console], Coroutine[None, None, bool]]


def options(prog: str, description: str | None, *, kills: int, of: str, secure: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the common options. `kills`: the default number of SIGKILLs; `of`: the kinds of killed
    processes. `secure`: whether it can run on brokers with users.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="1, or 3 with an etcd (default: 1)")
    if secure:
        parser.add_argument(
            "--secure", action="store_true", help="the three brokers of deploy/docker-compose.secure.yml"
        )
    parser.add_argument("--rows", type=int, help="only the first ROWS flights (default: all 336,776)")
    parser.add_argument("--kills", type=int, default=kills, help=f"SIGKILLs of {of} (default: {kills})")
    parser.add_argument("--seed", type=int, help="seed of the kills (default: random, and printed)")
    parser.add_argument(
        "--console",
        action=argparse.BooleanOptionalAction,
        help="serve the console's page meanwhile (default: if the extra `console` is installed)",
    )
    parser.add_argument("--data-dir", type=Path, help="keep broker data and logs here (default: a temporary folder)")
    return parser


def run_command(run: Run, parser: argparse.ArgumentParser) -> None:
    """Run the demo with the command line's arguments in an empty folder. Exits with 0 if all figures are exact,
    otherwise with 1.
    """
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(10_000)
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as temporary:
        directory = arguments.data_dir or Path(temporary) / "demo"
        if directory.exists() and any(directory.iterdir()):
            parser.error(f"{directory} is not empty; name a new folder")
        directory.mkdir(parents=True, exist_ok=True)
        exact = asyncio.run(run_until_done(run(arguments, directory, Console())))
    sys.exit(0 if exact else 1)
