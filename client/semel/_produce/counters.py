"""PURE. Counters of one producer: records and batches of each topic, and transactions. One addition for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec


class TopicCounters(msgspec.Struct):
    """The records of one topic. All totals count from the creation of the producer.

    records_sent, batches_sent, bytes_sent: in Produce requests; those sent again count again. bytes_sent: encoded and
    compressed.
    records_stored: acknowledged; with acks=0 given to the connection. records_failed: their futures got an error.
    """

    records_sent: int = 0
    batches_sent: int = 0
    bytes_sent: int = 0
    records_stored: int = 0
    records_failed: int = 0
    records_retried: int = 0
    batches_split: int = 0


class ProducerTransactionCounters:
    """The transactions of one producer, and the time that the application spent in its calls.

    prepared: in steps of a transaction group. seconds: by the name of the call.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.begun = self.committed = self.aborted = self.prepared = 0
        self.seconds = dict.fromkeys(("init", "begin", "send-offsets", "commit", "abort"), 0.0)

    @contextmanager
    def time(self, call: str) -> Iterator[None]:
        """Add the time of the block to the time of this call."""
        began = self._monotonic()
        try:
            yield
        finally:
            self.seconds[call] += self._monotonic() - began


class ProducerCounters:
    """All counters of one producer. They stay when the producer joins another step of its transaction group."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.topics: dict[str, TopicCounters] = {}
        self.transactions = ProducerTransactionCounters(monotonic)

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found
