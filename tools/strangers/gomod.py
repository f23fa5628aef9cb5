"""EDGE: fetches Go modules from their proxy, copies their sources, and runs `go test`."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.strangers.judge import ResultLine
from tools.strangers.reports import of_go

FETCH_TIMEOUT_S = 600
NO_NETWORK = ("dial tcp", "no such host", "i/o timeout", "connection refused", "module lookup disabled")


class GoError(RuntimeError):
    """The go command failed; the message is its output."""


class GoProxyUnreachableError(GoError):
    """The module proxy is not reachable."""


def go(words: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a go command; return its standard output. Raises GoError, GoProxyUnreachableError."""
    environment = {**os.environ, "GOFLAGS": "-mod=mod", **(variables or {})}
    ended = subprocess.run(
        ["go", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if ended.returncode != 0:
        said = ended.stdout + ended.stderr
        kind = GoProxyUnreachableError if any(words in said for words in NO_NETWORK) else GoError
        raise kind(said[-2000:])
    return ended.stdout


def source(module: str, version: str, into: Path) -> Path:
    """Return a fresh, writable copy of a module's source. Raises GoError, GoProxyUnreachableError."""
    into.parent.mkdir(parents=True, exist_ok=True)
    fetched = json.loads(go(["mod", "download", "-json", f"{module}@{version}"], into.parent))
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(fetched["Dir"], into)
    for path in [into, *into.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return into


def program(package: str, version: str, into: Path) -> Path:
    """Build a program of a module into a folder; return its path. Raises GoError, GoProxyUnreachableError."""
    into.mkdir(parents=True, exist_ok=True)
    built = into / package.rpartition("/")[2]
    if not built.is_file():
        go(["install", f"{package}@{version}"], into, {"GOBIN": str(into)})
    return built


def test(folder: Path, log: Path, words: list[str], variables: Mapping[str, str], timeout_s: float) -> list[ResultLine]:
    """Run `go test -json`; return the result of each test. `log`: its output. The time limit is for each package."""
    command = ["go", "test", "-json", "-count=1", f"-timeout={timeout_s:.0f}s", *words]
    environment = {**os.environ, "GOFLAGS": "-mod=mod", **variables}
    with log.open("wb") as out:
        subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    with log.open(errors="replace") as lines:
        return of_go(lines)
