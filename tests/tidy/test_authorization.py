"""docs/authorization.md is what the broker's table says."""

from __future__ import annotations

from tidy.authorization import PAGE, page


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == page(), "run `make map`"
