"""Kafka's wire protocol: converts bytes to values and back. No asyncio, no I/O, no clock."""

__version__ = "0.1.0"
