"""Consumer groups: two protocols as pure state machines, and offsets kept in `__consumer_offsets`."""
