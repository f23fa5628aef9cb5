"""The map of all files, a page of the site: one row a file, taken from the first sentence of its docstring.

`python -m tools.website.file_map` prints it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools.website import ROOT

PACKAGES = {
    "protocol/semel_protocol": "bytes <-> values",
    "storage/semel_storage": "the files of one partition",
    "broker/semel_broker": "the server",
    "client/semel": "the asyncio client, and the commands",
    "console/semel_console": "the web page",
    "pipeline/pyspark_semel": "semel for Spark",
}
OTHERS = {
    "demo": "the demonstrations",
    "tests/sim": "the simulator",
    "tests/fuzz": "malformed input",
    "tests/faults": "faults of real processes",
    "tests/support": "what tests share",
    "tools/strangers": "programs of others, against fresh brokers",
    "tools/cluster": "the runner of compose files",
    "tools/bench": "the figures",
}
HEAD = """# Map of the files

The packages, then what tests and tools consist of. [ARCHITECTURE.md](ARCHITECTURE.md) says how they work together.
*(edge)*: the file touches clock, operating system, sockets, randomness, threads or uvloop. *(pure)*: it has no state.
"""
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
    about = folder / "__init__.py"
    words = f": {summary(about)}." if about.exists() else ""
    heading = [] if name == "." else [f"**{name}/**{words}", ""]
    return [*heading, "| file | what it is |", "|---|---|", *lines, ""]


def file_map() -> str:
    """The whole map as Markdown."""
    lines: list[str] = [HEAD]
    for place, title in {**PACKAGES, **OTHERS}.items():
        root = ROOT / place
        folders = sorted({path.parent for path in root.rglob("*.py")})
        lines += [f"## {place}: {title}", ""]
        for folder in folders:
            lines += rows(folder, root)
    return "\n".join(lines)


if __name__ == "__main__":
    print(file_map())
