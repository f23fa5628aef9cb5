"""The shelf: one file for each API key, request and response together."""
