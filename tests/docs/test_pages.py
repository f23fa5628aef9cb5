"""Each command and each Python block of README.md and docs/*.md is run as a reader types it, or has a mark with a
reason.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from docs.blocks import REASONS, ROOT, RUNNABLE, SHOWN, DocumentBlock, blocks_of, blocks_of_page
from docs.pages import PROGRAMS, type_page
from docs.presumed import PRESUMED, Presumed

PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))]
BLOCKS = [block for page in PAGES for block in blocks_of_page(page)]
README = os.environ.get("SEMEL_TYPED_README", "")
"""`make dist` names the README in the wheel."""
SEARCHED = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
RUN_ELSEWHERE = {
    ("docs/frameworks.md", "python"): "tests/docs/test_frameworks.py",
    ("docs/moving-from-confluent-kafka.md", "python"): "tests/docs/test_moving_from_confluent_kafka.py",
    ("docs/security.md", "console"): "tests/docs/test_security_page.py",
    ("docs/security.md", "python"): "tests/docs/test_security_page.py",
    ("docs/testing.md", "python"): "tests/broker/testing/test_plugin.py",
}
"""Blocks, by page and language, that a test runs which adds more than a shell: that test takes all of them."""


def runs_here(block: DocumentBlock) -> bool:
    return block.runs and (block.page, block.language) not in RUN_ELSEWHERE


def run_pages() -> list[object]:
    pages = list(dict.fromkeys(block.page for block in BLOCKS if runs_here(block)))
    marks = {page: [pytest.mark.thorough, pytest.mark.slow] for page in pages if presumed(page).thorough}
    return [pytest.param(page, marks=marks.get(page, []), id=page) for page in pages]


def presumed(page: str) -> Presumed:
    """A page that is not in the table presumes a broker."""
    return PRESUMED.get(page, Presumed())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", run_pages())
def test_the_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    if (program := presumed(page).needs_program) and shutil.which(program, path=SEARCHED) is None:
        pytest.skip(f"there is no {program}")
    path = Path(README) if README and page == "README.md" else ROOT / page
    blocks = [each for each in blocks_of(path.read_text(), page) if runs_here(each) or each.title]
    type_page(blocks, tmp_path, presumed(page))


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.reason and each.language in RUNNABLE], ids=lambda each: each.place
)
def test_a_block_that_is_not_run_has_one_of_the_reasons(block: DocumentBlock) -> None:
    """Each is a line in the list of skipped tests: `pytest -rs`."""
    assert block.reason.startswith(REASONS), f"{block.place}: {block.reason!r} is not one of {REASONS}"
    assert all(words in block.text for words in block.left_out)
    pytest.skip(f"{block.place}: {block.reason}")


def test_each_block_has_a_language_that_is_run_or_read() -> None:
    for block in BLOCKS:
        assert block.language in (*RUNNABLE, *SHOWN), f"{block.place}: a block needs a language: {RUNNABLE + SHOWN}"


def test_the_fences_of_each_page_are_understood() -> None:
    for page in PAGES:
        fences = sum(line.lstrip().startswith("```") for line in (ROOT / page).read_text().splitlines())
        assert fences == 2 * len(blocks_of_page(page)), page


def test_a_mark_stands_before_a_block() -> None:
    for page in PAGES:
        marks = (ROOT / page).read_text().count("<!-- not run:")
        assert marks == sum(1 for each in blocks_of_page(page) if each.reason), page


def test_what_is_run_elsewhere_is_there() -> None:
    for (page, language), test in RUN_ELSEWHERE.items():
        assert any(each.page == page and each.language == language for each in BLOCKS)
        assert Path(page).name in (ROOT / test).read_text()


def test_the_table_has_no_page_without_blocks_to_run() -> None:
    assert set(PRESUMED) <= {each.page for each in BLOCKS if runs_here(each)}


def test_a_page_with_a_wrong_output_a_failing_command_or_a_failing_program_is_found(tmp_path: Path) -> None:
    for number, wrong in enumerate(
        (
            "```console\n$ echo one\ntwo\n```\n",
            "```console\n$ false\n```\n",
            "```sh\ncat <<'EOF'\nfalse\nEOF\ntrue && \\\n  false\n```\n",
            "```python\nraise ValueError\n```\n",
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(AssertionError, match="printed"):
            type_page(list(blocks_of(wrong)), folder, Presumed(first=""))
    right = "```console\n$ echo one 17\none ...\n```\n```python\nimport asyncio\nawait asyncio.sleep(0)\n```\n"
    type_page(list(blocks_of(right)), tmp_path, Presumed(first=""))


def test_a_block_that_is_marked_is_left_out(tmp_path: Path) -> None:
    whole = "<!-- not run: needs Docker -->\n```sh\nfalse\n```\n"
    in_part = "<!-- not run: needs root; lines: fal -->\n```sh\nfalse\ntrue\n```\n"
    blocks = list(blocks_of(f"{whole}\n{in_part}"))
    assert [(each.reason, each.left_out, each.runs) for each in blocks] == [
        ("needs Docker", (), False),
        ("needs root", ("fal",), True),
    ]
    type_page([each for each in blocks if each.runs], tmp_path, Presumed(first=""))


def test_a_command_that_does_not_end_is_ended_by_sigint(tmp_path: Path) -> None:
    waits = "import time; open('started', 'w'); [time.sleep(0.01) for _ in iter(int, 1)]"
    page = f'```sh\npython -c "{waits}"\ntouch after\n```\n'
    endless = Presumed(first="", endless={"python -c": "until test -e started; do true; done"})
    with pytest.raises(AssertionError, match=r"status \[130\]"):  # it does not handle SIGINT
        type_page(list(blocks_of(page)), tmp_path, endless, timeout_s=60)
    assert (tmp_path / "after").exists()
