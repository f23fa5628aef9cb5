"""EDGE: builds wheel and sdist into dist/, and uses the wheel as its users will: `make dist`.

1. `python -m build` makes the sdist, and the wheel from the sdist. twine checks both; their contents are compared.
2. An empty environment gets the wheel with the extra `broker`. The README in the wheel is typed there, and each page
   of the documents that needs no other extra.
3. A second environment gets the wheel with pytest, Spark and other clients. The tests of documents and examples run
   with it, in a folder without the sources of the packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
PACKAGES = {
    "semel",
    "semel_broker",
    "semel_command",
    "semel_console",
    "semel_protocol",
    "semel_storage",
    "pyspark_semel",
}
TESTS = (
    "tests/docs/test_pages.py",
    "tests/docs/test_moving_from_confluent_kafka.py",
    "tests/docs/test_security_page.py",
    "tests/examples",
    "tests/broker/testing/test_plugin.py",
    "tests/client/transactions/test_transaction_groups_docs.py",
)
EXTRAS = ("broker", "compat", "avro", "protobuf", "check", "spark", "tests")
"""What pages and examples need. Pages that need `broker` alone are typed in the first environment."""
NEEDED_BY_TESTS = (
    "tests",
    "docs",
    "examples",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)


def main() -> int:
    for folder in (DIST, BUILD):
        shutil.rmtree(folder, ignore_errors=True)
    _step("build sdist and wheel")
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    _check_contents(wheel, sdist)

    _step("install the wheel with the extra broker into an empty environment")
    plain = _environment("plain", f"{wheel}[broker]")
    (BUILD / "README.md").write_text(_readme(wheel))
    typed = {"SEMEL_TYPED_WITH": str(plain), "SEMEL_TYPED_README": str(BUILD / "README.md")}

    _step("install the wheel with pytest, Spark and other clients, and run the documents and examples")
    tested = _environment("tested", f"{wheel}[{','.join(EXTRAS)}]")
    there = BUILD / "without-sources"
    for name in NEEDED_BY_TESTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, there / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, there / name)
    shutil.copy(ROOT / "pyproject.toml", there)
    _run(
        str(tested / "python"),
        "-m",
        "pytest",
        "-q",
        "-rs",
        "--durations=15",
        "-p",
        "no:cacheprovider",
        *TESTS,
        at=there,
        environment=typed,
    )
    print(f"\n{wheel.name} and {sdist.name} are in {DIST.relative_to(ROOT)}/")
    return 0


def _check_contents(wheel: Path, sdist: Path) -> None:
    """End the program if a package is missing, or something else is in the wheel."""
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == PACKAGES, f"the wheel holds {sorted(tops)}, not {sorted(PACKAGES)}"
    for package in PACKAGES:
        assert f"{package}/py.typed" in names, f"{package}/py.typed is not in the wheel"
    with tarfile.open(sdist) as opened_sdist:
        files = [name.partition("/")[2] for name in opened_sdist.getnames()]
    for name in ("pyproject.toml", "README.md", "LICENSE", "tests/conftest.py"):
        assert name in files, f"{name} is not in the sdist"
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size / 1024:,.0f} KiB")


def _readme(wheel: Path) -> str:
    """The README that a package index shows: the body of the wheel's METADATA."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        body = Parser().parsestr(opened.read(name).decode()).get_payload()
    assert isinstance(body, str)
    return body


def _environment(name: str, *requirements: str) -> Path:
    """A new environment with these packages; the folder of its programs."""
    _run(sys.executable, "-m", "venv", str(BUILD / name))
    programs = BUILD / name / "bin"
    _run(str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    return programs


def _step(words: str) -> None:
    print(f"\n== {words}", flush=True)


def _run(*command: str, at: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    """End this program if the command fails. PYTHONPATH is not passed on: it could hide what a wheel lacks."""
    mine = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=at, env={**mine, **(environment or {})}, check=False)
    if done.returncode:
        sys.exit(f"failed with status {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main())
