"""EDGE: installs npm packages, copies checkouts, and runs Jest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.strangers.judge import ResultLine
from tools.strangers.reports import of_jest

FETCH_TIMEOUT_S = 900
NO_NETWORK = ("ENOTFOUND", "ECONNREFUSED", "EAI_AGAIN", "ETIMEDOUT", "ENOTCACHED")


class NpmError(RuntimeError):
    """npm or a test runner failed; the message is its output."""


class NpmUnreachableError(NpmError):
    """The registry is not reachable."""


def install(folder: Path, packages: Mapping[str, str] | None = None) -> Path:
    """Install packages (name -> version) into a folder, or those of its package.json; once, without install scripts.

    Returns the folder. Raises NpmError, NpmUnreachableError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if packages is not None:
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": dict(packages)}))
    mark = hashlib.sha256((folder / "package.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".installed"
    if stamp.is_file() and stamp.read_text() == mark:
        return folder
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if ended.returncode != 0:
        said = ended.stdout + ended.stderr
        kind = NpmUnreachableError if any(words in said for words in NO_NETWORK) else NpmError
        raise kind(said[-2000:])
    stamp.write_text(mark)
    return folder


def copy(checkout: Path, into: Path) -> Path:
    """Return a fresh, writable copy of a checkout; packages that npm installed into an earlier copy stay."""
    into.mkdir(parents=True, exist_ok=True)
    for path in into.iterdir():
        if path.name != "node_modules":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(
        checkout, into, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(".git", "node_modules")
    )
    return into


def jest(folder: Path, log: Path, words: list[str], variables: Mapping[str, str]) -> list[ResultLine]:
    """Run Jest in a folder; return the result of each test. `log`: its output. Raises NpmError if it cannot start."""
    report = log.with_suffix(".json")
    report.unlink(missing_ok=True)
    command = ["node_modules/.bin/jest", "--json", f"--outputFile={report}", *words]
    with log.open("wb") as out:
        subprocess.run(
            command, cwd=folder, env={**os.environ, **variables}, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if not report.is_file():
        raise NpmError(f"jest wrote no report; see {log}")
    return of_jest(report.read_text(), str(folder))
