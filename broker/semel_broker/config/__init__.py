"""Settings of brokers and topics: declared, read from text, checked, edited; and the limits that are not settings."""
