"""The pages that a reader types from top to bottom do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.pages import ROOT, type_page


@pytest.mark.parametrize("page", ["getting-started.md", "transactions.md"])
def test_the_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    type_page((ROOT / "docs" / page).read_text(), tmp_path)
