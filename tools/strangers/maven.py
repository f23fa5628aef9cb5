"""EDGE: fetches the jars of a pom.xml with Maven, and compiles Java programs against them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

FETCH_TIMEOUT_S = 900
COMPILE_TIMEOUT_S = 300
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
NO_NETWORK = (
    "Could not transfer",
    "Unknown host",
    "Connection refused",
    "timed out",
    "Network is unreachable",
    "offline",
)


class MavenError(RuntimeError):
    """Maven or the compiler failed; the message is their output."""


class MavenUnreachableError(MavenError):
    """The registry is not reachable."""


def jars(pom: Path, into: Path, properties: Mapping[str, str] | None = None) -> Path:
    """Return a folder with all jars of a pom.xml with these properties; fetched once. Raises MavenError,
    MavenUnreachableError.
    """
    words = [f"-D{key}={value}" for key, value in sorted((properties or {}).items())]
    mark = hashlib.sha256(pom.read_bytes() + "\n".join(words).encode()).hexdigest()
    stamp = into / "fetched"
    if stamp.is_file() and stamp.read_text() == mark:
        return into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), COPY, f"-DoutputDirectory={into.absolute()}", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    said = ended.stdout + ended.stderr
    if ended.returncode != 0:
        kind = MavenUnreachableError if any(words in said for words in NO_NETWORK) else MavenError
        raise kind("\n".join(line for line in said.splitlines() if "ERROR" in line)[:2000] or said[-2000:])
    stamp.write_text(mark)
    return into


def classes(sources: list[Path], lib: Path, into: Path) -> str:
    """Compile sources against the jars of a folder; return the class path with both. Raises MavenError."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    command = ["javac", "-nowarn", "-proc:none", "-cp", f"{lib}/*", "-d", str(into), *map(str, sources)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    if ended.returncode != 0:
        raise MavenError(ended.stderr[-4000:])
    return os.pathsep.join([str(into), f"{lib}/*"])
