"""The blocks of a page of the documents, and the marks of those that no test runs.

A mark is a comment on the line before the block: `<!-- not run: REASON -->`. With `<!-- not run: REASON; lines: WORDS,
WORDS -->` only the lines that begin with these words are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMANDS = ("console", "sh")
"""Languages of blocks that a shell runs: a session with its output, or commands alone."""
RUNNABLE = (*COMMANDS, "python")
SHOWN = ("dockerfile", "ini", "json", "mermaid", "properties", "text", "toml", "yaml")
"""Languages of blocks that are read, not run."""
REASONS = (
    "needs Apache Kafka",
    "needs Docker",
    "needs Kubernetes",
    "needs Spark on a cluster",
    "needs YARN",
    "needs a cloud",
    "needs a package index",
    "needs an etcd with TLS",
    "needs root",
    "needs systemd",
    "takes minutes",
)
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n\n?)?"
    r"```(?P<language>\w*)(?: title=\"(?P<title>[^\"\n]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.M | re.S,
)
MARK = re.compile(r"not run: (?P<reason>[^;]+?)(?:; lines: (?P<lines>.+))?")


@dataclass(frozen=True)
class DocumentBlock:
    """line: that of the first fence, from 1. reason: why it, or the lines that begin with `left_out`, are not run."""

    page: str
    line: int
    language: str
    title: str
    text: str
    reason: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether a test has to run the block, or a part of it."""
        return self.language in RUNNABLE and (not self.reason or bool(self.left_out))


def blocks_of(text: str, page: str = "") -> Iterator[DocumentBlock]:
    """The blocks of a page, in order."""
    for found in BLOCK.finditer(text):
        mark = MARK.fullmatch(found["mark"] or "")
        yield DocumentBlock(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["title"] or "",
            found["text"],
            mark["reason"] if mark else "",
            tuple(mark["lines"].split(", ")) if mark and mark["lines"] else (),
        )


def blocks_of_page(page: str) -> list[DocumentBlock]:
    """The blocks of a file of the repository, for example `docs/quotas.md`."""
    return list(blocks_of((ROOT / page).read_text(), page))
