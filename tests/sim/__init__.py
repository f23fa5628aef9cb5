"""The simulator: the unchanged broker, client and storage in a deterministic world, under faults drawn from a seed."""
