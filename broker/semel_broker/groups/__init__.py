"""Consumer groups: the classic protocol as a pure state machine, and offsets kept in `__consumer_offsets`."""
