"""Kafka's wire: bytes <-> values. No asyncio, no I/O, no clock."""

__version__ = "0.1.0"
