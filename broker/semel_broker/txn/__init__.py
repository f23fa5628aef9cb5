"""Transactions: the state of each transactional id, transaction groups, and the markers of each outcome."""
