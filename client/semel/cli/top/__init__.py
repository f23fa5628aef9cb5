"""The command `semel top`."""
