"""EDGE: prints one part of a page: `python -m tools.website.made metrics`."""

from __future__ import annotations

import sys

from tools.website.made import PARTS, made

if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in PARTS:
        print(made(sys.argv[1]), end="")
    else:
        sys.exit(f"usage: python -m tools.website.made NAME; the names are {', '.join(PARTS)}")
