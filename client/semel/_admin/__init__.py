"""The calls of `Admin`, one file for each kind of thing they describe or change."""
