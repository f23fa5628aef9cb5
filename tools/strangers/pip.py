"""EDGE: installs Python packages with pip: one virtual environment per suite, source distributions, pytest in both."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tools.strangers.judge import ResultLine
from tools.strangers.reports import of_junit

FETCH_TIMEOUT_S = 900
NO_NETWORK = ("NewConnectionError", "Temporary failure in name resolution", "ReadTimeoutError", "Max retries exceeded")

PYTEST = (
    "import signal, pytest; signal.signal(signal.SIGINT, signal.default_int_handler); raise SystemExit(pytest.main())"
)
"""Some suites send themselves SIGINT, which background jobs of a shell ignore."""


class PipError(RuntimeError):
    """pip failed; the message is its output."""


class PipUnreachableError(PipError):
    """The package index is not reachable."""


def pip(python: Path | str, *words: str) -> None:
    """Run pip. Raises PipError, PipUnreachableError."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if ended.returncode != 0:
        said = ended.stdout + ended.stderr
        kind = PipUnreachableError if any(words in said for words in NO_NETWORK) else PipError
        raise kind(said[-2000:])


def venv(packages: list[str], into: Path) -> Path:
    """Create a virtual environment with these packages once; return its python.

    Raises PipError, PipUnreachableError.
    """
    python = into / "bin" / "python"
    mark = hashlib.sha256("\n".join([sys.version, *packages]).encode()).hexdigest()
    stamp = into / "made"
    if stamp.is_file() and stamp.read_text() == mark:
        return python
    shutil.rmtree(into, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(into)], check=True, timeout=FETCH_TIMEOUT_S)
    pip(python, "install", "--quiet", *packages)
    stamp.write_text(mark)
    return python


def source(package: str, version: str, into: Path) -> Path:
    """Return a fresh folder with a package's source distribution. Raises PipError, PipUnreachableError."""
    archives = into / f"{package}-{version}.sdist"
    if not list(archives.glob("*.tar.gz")):
        archives.mkdir(parents=True, exist_ok=True)
        words = ["--no-deps", "--no-binary", package, "--dest", str(archives)]
        pip(sys.executable, "download", "--quiet", *words, f"{package}=={version}")
    (archive,) = archives.glob("*.tar.gz")
    unpacked = into / f"{package}-{version}"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (top,) = unpacked.iterdir()
    return top


PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""The files in which pytest looks for its settings; the folder of the first one found is its root."""


def pytest(
    python: Path, folder: Path, log: Path, words: list[str], variables: Mapping[str, str], without: str = ""
) -> list[ResultLine]:
    """Run pytest in a folder; return the result of each test. `log`: its output. Raises PipError."""
    xml = log.with_suffix(".xml")
    xml.unlink(missing_ok=True)
    if not any((folder / name).exists() for name in PYTEST_FILES):
        (folder / "pytest.ini").write_text(
            "[pytest]\n"
        )  # otherwise pytest uses the settings of a parent folder: those of this repository
    command = [str(python), "-c", PYTEST, "-v", "-p", "no:cacheprovider", f"--junitxml={xml}", "--tb=short", *words]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("wb") as out:
        ended = subprocess.run(
            command, cwd=folder, env={**environment, **variables}, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if ended.returncode not in (0, 1) or not xml.is_file():
        raise PipError(f"pytest ended with {ended.returncode}; see {log}")
    return of_junit(xml.read_text(errors="replace"), without)
