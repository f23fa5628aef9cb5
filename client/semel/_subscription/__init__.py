"""PURE: a consumer's subscription, assignment, positions and fetched bytes."""
