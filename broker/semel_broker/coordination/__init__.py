"""The parts that the coordinators of groups and of transactions share: shards of internal topics, producer ids."""
