"""Membership in a consumer group, and committed offsets."""
