"""The site of the documents: `make docs`."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout."""
