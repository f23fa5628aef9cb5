"""PURE: a transactional id and a transaction group as data: states, decisions, records."""
