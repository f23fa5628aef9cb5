"""Transactions: which state each transactional id is in, and how a decision reaches every partition."""
