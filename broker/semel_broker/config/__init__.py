"""The settings of brokers and topics: declarations, parsing, checks and edits; and the limits that are not settings."""
