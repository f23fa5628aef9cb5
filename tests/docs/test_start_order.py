"""In every program that a reader may copy, the transactional producer starts before the consumer of the group."""

from __future__ import annotations

import pytest
from docs.blocks import ROOT, blocks_of_page
from docs.start_order import late_producers

PAGES = ["README.md", *sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md"))]
FILES = sorted(
    file.relative_to(ROOT).as_posix() for folder in ("examples", "demo") for file in (ROOT / folder).rglob("*.py")
)
MEMBER = 'Consumer("t", group_id="g")'
PRODUCER = 'Producer(transactional_id="p")'


def program(*lines: str) -> str:
    return "async def main():\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_starts_the_producer_first(page: str) -> None:
    blocks = [block for block in blocks_of_page(page) if block.language == "python"]
    assert [f"{block.place}+{line}" for block in blocks for line in late_producers(block.text)] == []


@pytest.mark.parametrize("file", FILES)
def test_an_example_starts_the_producer_first(file: str) -> None:
    assert late_producers((ROOT / file).read_text()) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (program(f"async with {MEMBER} as c, {PRODUCER} as p: pass"), [2]),
        (program(f"async with {PRODUCER} as p, {MEMBER} as c: pass"), []),
        (program(f"async with {MEMBER} as c:", f"    async with {PRODUCER} as p: pass"), [3]),
        (program(f"c = {MEMBER}", f"p = {PRODUCER}", "await c.start()", "await p.start()"), [5]),
        (program(f"c = {MEMBER}", f"p = {PRODUCER}", "await p.start()", "await c.start()"), []),
        (program(f"c = {MEMBER}", f"p = {PRODUCER}", "async with c, p: pass"), [4]),
        (program(f"async with AIOKafka{MEMBER} as c, AIOKafka{PRODUCER} as p: pass"), [2]),
        (
            program(
                'c = Consumer({"group.id": "g"})',
                'p = Producer({"transactional.id": "p"})',
                'c.subscribe(["t"])',
                "p.init_transactions()",
            ),
            [5],
        ),
        (program('async with Consumer("t") as c, Producer(transactional_id="p") as p: pass'), []),
        (program(f"async with {MEMBER} as c, Producer() as p: pass"), []),
    ],
)
def test_a_producer_that_starts_late_is_found(source: str, lines: list[int]) -> None:
    assert late_producers(source) == lines
