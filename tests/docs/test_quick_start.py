"""The quick start of README.md, typed from top to bottom."""

from __future__ import annotations

import os
import re
from pathlib import Path

from docs.pages import ROOT, type_page

README = Path(os.environ.get("SEMEL_TYPED_README", ROOT / "README.md")).read_text()
QUICK_START = README[README.index("## Quick start") : README.index("## Two commands")]


def test_the_quick_start_prints_what_it_says(tmp_path: Path) -> None:
    """Without its first command: this environment is installed already."""
    (install,) = re.findall(r"^\$ pip install .*\n", QUICK_START, re.M)
    type_page(QUICK_START.replace(install, ""), tmp_path)
