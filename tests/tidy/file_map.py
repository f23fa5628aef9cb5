"""The file map of ARCHITECTURE.md: one row a file, taken from the first sentence of its docstring.

`python -m tidy.file_map` prints it; with `--write` it goes into ARCHITECTURE.md, between its two marks.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "protocol/semel_protocol": "bytes <-> values",
    "storage/semel_storage": "the files of one partition",
    "broker/semel_broker": "the server",
    "client/semel": "the asyncio client, and the commands",
    "console/semel_console": "the web page",
    "pipeline/pyspark_semel": "semel for Spark",
}
BEGIN, END = "<!-- file map: begin (written by `make map`) -->", "<!-- file map: end -->"
NUMBERED = re.compile(r"k\d+_\w+\.py")
"""One file per API: each folder of them has one row."""
KINDS = {"EDGE": "edge", "PURE": "pure"}


def summary(path: Path) -> str:
    """The first sentence of a file's docstring; `EDGE:` and `PURE:` become a remark behind it."""
    text = ast.get_docstring(ast.parse(path.read_text(), str(path))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    kind = re.match(r"(EDGE|PURE)[:.] +", paragraph)
    if kind:
        paragraph = paragraph[kind.end() :]
    sentence = re.split(r"(?<=[a-z0-9)`_\]])\. (?=[A-Z`])", paragraph)[0].rstrip(".").replace("|", "\\|")
    sentence = sentence[:1].upper() + sentence[1:]
    return f"{sentence} *({KINDS[kind[1]]})*" if kind else sentence


def rows(folder: Path, root: Path) -> list[str]:
    """The table of one folder's own files."""
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    numbered = [path for path in files if NUMBERED.fullmatch(path.name)]
    lines = [f"| `{path.name}` | {summary(path)} |" for path in files if path not in numbered]
    if numbered:
        lines.append(f"| `kNN_name.py` | {len(numbered)} files, one for each API key |")
    if not lines:
        return []
    name = folder.relative_to(root).as_posix()
    heading = [] if name == "." else [f"**{name}/**: {summary(folder / '__init__.py')}.", ""]
    return [*heading, "| file | what it is |", "|---|---|", *lines, ""]


def file_map() -> str:
    """The whole map as Markdown."""
    lines: list[str] = []
    for package, title in PACKAGES.items():
        root = ROOT / package
        folders = sorted({path.parent for path in root.rglob("*.py")})
        lines += [f"### {package}: {title}", ""]
        for folder in folders:
            lines += rows(folder, root)
    return "\n".join([BEGIN, "", *lines, END])


def written(document: str) -> str:
    """The document with the map of today between its marks."""
    begin, end = document.index(BEGIN), document.index(END) + len(END)
    return document[:begin] + file_map() + document[end:]


def main() -> None:
    path = ROOT / "ARCHITECTURE.md"
    if "--write" in sys.argv:
        path.write_text(written(path.read_text()))
    else:
        print(file_map())


if __name__ == "__main__":
    main()
