"""docs/authorization.md equals the page that the broker's table generates."""

from __future__ import annotations

from tidy.authorization import PAGE, page


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == page(), "run `make map`"
