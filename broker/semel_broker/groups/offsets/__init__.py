"""Committed offsets, which groups of every kind have: those in effect, those of transactions, their records."""
