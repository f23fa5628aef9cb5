"""Consumer groups: membership, heartbeats, rebalances, committed offsets."""
