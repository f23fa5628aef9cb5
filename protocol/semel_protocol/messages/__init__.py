"""The messages of the protocol: one file for each API key holds its request and response."""
