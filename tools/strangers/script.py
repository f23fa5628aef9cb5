"""EDGE: the functions for the run.py of a suite: broker addresses, reports, downloads, and kills.

from tools.strangers import script

def main() -> None:
    with script.test("every record once, in order"):
        ...                       # an exception is a failure, and the run continues

script.run(main)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.strangers import control, gomod, maven, npm, pip
from tools.strangers.judge import NOTHING_TO_RUN, Outcome, ResultLine
from tools.strangers.suite import Suite, listed, parse

MESSAGE_MAX = 400
TIER = Path(__file__).parent / "java" / "Tier.java"
"""The Java source that every Java program of the suites uses."""


class NothingToRunError(Exception):
    """A tool, the network or a checkout is missing; the message names it."""


def bootstrap() -> str:
    return os.environ["STRANGERS_BOOTSTRAP"]


def brokers() -> int:
    return int(os.environ["STRANGERS_BROKERS"])


def against() -> str:
    return os.environ["STRANGERS_AGAINST"]


def listener(protocol: str) -> str:
    """The address of the broker's listener with that security protocol. Raises NothingToRunError if it has none."""
    if not (address := os.environ.get(f"STRANGERS_{protocol}", "")):
        raise NothingToRunError(f"the brokers of this run have no listener {protocol}")
    return address


def security() -> Path:
    """The folder with ca.pem, and with server and client as .pem (key and certificate), .key and .crt."""
    return Path(os.environ["STRANGERS_SECURITY"])


def replicas() -> int:
    """The replication factor of the suite's topics."""
    return brokers()


def work() -> Path:
    """The suite's work folder, kept between runs."""
    return Path(os.environ["STRANGERS_WORK"])


def scratch() -> Path:
    """A scratch folder for this run."""
    return Path(os.environ["STRANGERS_RESULTS"]).parent


def folder() -> Path:
    """The suite's own folder, with its programs."""
    return Path(sys.argv[0]).resolve().parent


def suite() -> Suite:
    return parse(folder().name, (folder() / "suite.toml").read_text())


def pin(name: str) -> str:
    """The single version of a package in suite.toml."""
    (only,) = pins(name)
    return only


def pins(name: str) -> list[str]:
    return listed(suite().pins[name])


def checkout(name: str = "", tag: str = "") -> Path:
    """Return a folder of STRANGERS_SRC: the suite's `checkout`, or another by name. `tag`: the expected tag of the
    checkout.

    Raises NothingToRunError if the folder is missing or at another commit.
    """
    name = name or suite().checkout
    source = os.environ.get("STRANGERS_SRC", "")
    if not source or not (Path(source) / name).is_dir():
        raise NothingToRunError(f"no checkout of {name}: set STRANGERS_SRC to the folder that holds one")
    found = Path(source) / name
    if tag:
        ask = ["git", "-C", str(found), "describe", "--tags", "--exact-match", "--match", tag]
        if subprocess.run(ask, capture_output=True, check=False).returncode:
            raise NothingToRunError(f"the checkout of {name} is not at its tag {tag}")
    return found


def report(test: str, outcome: Outcome, message: str = "") -> None:
    """Report the outcome of a test to the runner."""
    line = json.dumps({"test": test, "outcome": outcome, "message": " ".join(message.split())[:MESSAGE_MAX]})
    with open(os.environ["STRANGERS_RESULTS"], "a") as results:
        results.write(line + "\n")
    print(line, flush=True)


def report_all(results: Iterable[ResultLine], prefix: str = "") -> None:
    """Report the results of a third-party test suite to the runner. `prefix`: of each test's name."""
    for each in results:
        report(prefix + each.test, each.outcome, each.message)


@contextmanager
def test(name: str) -> Iterator[None]:
    """Run a block as one test: passed, or failed with the exception's message."""
    try:
        yield
    except NothingToRunError as missing:
        report(name, "skipped", str(missing))
    except Exception as error:
        traceback.print_exc()
        report(name, "failed", f"{type(error).__name__}: {error}")
    else:
        report(name, "passed")


def kill_and_start(index: int, down_s: float = 1.0) -> None:
    """Kill a broker with SIGKILL, and restart it on its data after `down_s`."""
    control.ask("kill", index)
    threading.Event().wait(down_s)  # the downtime
    control.ask("start", index)


def jars(pom: Path, into: str, **properties: str) -> Path:
    """Return a folder below `work` with the jars of a pom.xml. Raises NothingToRunError if the registry is not
    reachable.
    """
    try:
        return maven.jars(pom, work() / into, {key.replace("_", "."): value for key, value in properties.items()})
    except maven.MavenUnreachableError as error:
        raise NothingToRunError(f"Maven's registry is not reachable: {error}") from error


def classes(lib: Path, into: str, sources: list[Path] | None = None) -> str:
    """Compile the suite's Java programs and Tier.java for this run; return the class path."""
    return maven.classes([TIER, *(sources or sorted(folder().glob("*.java")))], lib, scratch() / into)


def java(class_path: str, main: str, *arguments: str, timeout_s: float, options: list[str] | None = None) -> str:
    """Run a Java program; return its output. Raises AssertionError with its last lines if it fails."""
    command = ["java", "-Xmx512m", *(options or []), "-cp", class_path, main, *arguments]
    return output(command, timeout_s)


def output(
    command: list[str],
    timeout_s: float,
    status: int | None = 0,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command; return its output. Raises AssertionError for another exit status (None: any is accepted).

    environment: variables in addition to those of this process.
    """
    ended = subprocess.run(
        command,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    print(ended.stdout, flush=True)
    last = " / ".join(ended.stdout.strip().splitlines()[-3:])
    assert status is None or ended.returncode == status, f"{command[0]} ended with {ended.returncode}: {last}"
    return ended.stdout


def run(main: Callable[[], None]) -> None:
    """Run a suite's main function and exit with the status that the runner expects."""
    try:
        main()
    except (
        NothingToRunError,
        maven.MavenUnreachableError,
        gomod.GoProxyUnreachableError,
        pip.PipUnreachableError,
        npm.NpmUnreachableError,
    ) as missing:
        words = " ".join(str(missing).split())
        print(words if isinstance(missing, NothingToRunError) else f"a registry is not reachable: {words}", flush=True)
        sys.exit(NOTHING_TO_RUN)
