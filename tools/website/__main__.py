"""EDGE: builds the site of the documents: `make docs`.

The pages stay where the repository has them, with links that work there. This program copies them into build/docs under
the same paths, and each file that they link to. So the same links work on the site. Tables that are made of the code
come in at marked places (`tools/website/made`). zensical then writes build/site, and this program puts the index of its
search in order (`tools/website/search.py`). A link that leads nowhere fails the build.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.website import ROOT
from tools.website.file_map import file_map
from tools.website.links import with_proposals, with_repository
from tools.website.made import filled
from tools.website.search import ordered

BUILD = ROOT / "build"
PAGES, SITE, CONFIG = BUILD / "docs", BUILD / "site", BUILD / "zensical.toml"
SOURCES = ("*.md", "docs/**/*", "examples/*", "tools/*/*.md")
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?=(?:#[^)\s]*)?\))")


def main() -> int:
    """Build the site. With the argument `serve` it then serves the built pages on 127.0.0.1:8000."""
    if failed := build():
        return failed
    print(f"the site is in {SITE.relative_to(ROOT)}; `make docs ARGS=serve` shows it")
    if sys.argv[1:] != ["serve"]:
        return 0
    serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(SITE), "8000"]
    with contextlib.suppress(KeyboardInterrupt):
        return subprocess.run(serve, check=False).returncode
    return 0


def build() -> int:
    """Build the site, and return zensical's status."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    for pattern in SOURCES:
        for source in ROOT.glob(pattern):
            if source.is_file() and "__pycache__" not in source.parts:
                _take(source)
    for source in (ROOT / "tools/website" / "api").glob("*.md"):
        _write(PAGES / "api" / source.name, source.read_text())
    _write(PAGES / "map.md", file_map())
    _write(PAGES / "site.css", (ROOT / "tools/website" / "site.css").read_text())
    config = (ROOT / "tools/website" / "zensical.toml").read_text()
    _write(CONFIG, with_repository(config, (ROOT / "pyproject.toml").read_text()))
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", CONFIG], check=False
    )
    if not built.returncode:
        _order_the_index()
    return built.returncode


def _order_the_index() -> None:
    index = SITE / "search.json"
    pages = {f"{page.relative_to(PAGES).with_suffix('')}/": page.read_text() for page in PAGES.rglob("*.md")}
    _write(index, json.dumps(ordered(json.loads(index.read_text()), pages), ensure_ascii=False))


def _take(source: Path) -> None:
    """Copy a page, and the files that it links to outside of the pages."""
    if source.suffix != ".md":
        _copy(source)
        return
    page = LINK.sub(lambda found: _link(source, found["path"]), filled(source.read_text()))
    _write(_place(source), with_proposals(page))


def _link(page: Path, path: str) -> str:
    """The link as the site has it. README.md is the first page there; a folder is its README.md."""
    target = (page.parent / path).resolve()
    if target.is_dir():
        target, path = target / "README.md", f"{path.rstrip('/')}/README.md"
    if target == ROOT / "README.md":
        return f"{path.removesuffix('README.md')}index.md"
    if target.is_file() and target.suffix != ".md":
        _copy(target)
    return path


def _place(source: Path) -> Path:
    at = source.relative_to(ROOT)
    return PAGES / ("index.md" if at == Path("README.md") else at)


def _copy(source: Path) -> None:
    _write(_place(source), source.read_bytes())


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    sys.exit(main())
