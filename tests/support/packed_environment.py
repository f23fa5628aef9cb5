"""A Python environment as one archive, as a cluster's `--archives` takes it: the running one's packages, no download.

It holds what `semel[spark]` needs on an executor. pyspark itself comes with Spark. As with venv-pack, the interpreter
is a link, so it must lie at the same path on each machine.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pyspark_semel
import semel
import semel_protocol

PACKAGES = (semel, semel_protocol, pyspark_semel)
NEEDED = ("msgspec", "crc32c", "cramjam", "click", "rich", "pyarrow", "numpy")
NEEDLESS = shutil.ignore_patterns("__pycache__", "tests", "include", "*.pyi", "*.pxd", "*.hpp")


def pack(folder: Path) -> Path:
    """Create `environment.tar.gz` in the folder and return its path."""
    made = folder / "packed"
    venv.create(made, symlinks=True, with_pip=False)
    (site,) = made.glob("lib/python*/site-packages")
    for package in PACKAGES:
        assert package.__file__ is not None
        source = Path(package.__file__).parent
        shutil.copytree(source, site / source.name, ignore=NEEDLESS)
    for top in sorted({path for name in _with_dependencies(NEEDED) for path in _tops(name)}):
        target = site / top.name
        if top.is_dir():
            shutil.copytree(top, target, ignore=NEEDLESS, dirs_exist_ok=True)
        else:
            shutil.copy(top, target)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(made, ".")
    shutil.rmtree(made)
    return archive


def _with_dependencies(names: tuple[str, ...]) -> Iterator[str]:
    """The distributions, and those that they need in any case (no extras)."""
    found: list[str] = []
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # for another platform
        found.append(name)
        ahead += [re.split(r"[^\w.-]", each)[0] for each in required if "extra ==" not in each]
    yield from found


def _tops(name: str) -> Iterator[Path]:
    """The files and folders at the top of site-packages that belong to the distribution."""
    one = distribution(name)
    tops = {path.parts[0] for path in one.files or () if path.parts[0] not in ("..", "__pycache__")}
    yield from (Path(str(one.locate_file(top))) for top in tops)
