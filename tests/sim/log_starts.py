"""Follows, during a run, the log starts of topics with retention.

A log start may go back: a power loss undoes a deletion, and a new leader may not know it. A reader that was sent past
deleted records has not skipped them, though they are there again at the end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.broker import SimBroker
from sim.events import HistoryTopic, Place


class LogStarts:
    """`highest`: the highest log start of any replica. `brokers` by host name; `topics` by name, also later ones."""

    due_ns = 0  # `look` is due at every step

    def __init__(self, brokers: Mapping[str, SimBroker], topics: Mapping[str, HistoryTopic]) -> None:
        self.highest: dict[Place, int] = {}
        self._brokers, self._topics = brokers, topics

    def look(self, now_ns: int) -> None:
        """Look at all brokers: at every step, because an answer may show a log start that the next step takes back.

        It is called very often, so it reads the partitions without sorting them.
        """
        for broker in self._brokers.values():
            if broker.node is None or not broker.host.is_running:
                continue
            for partition in broker.node.broker.topics.local._partitions.values():
                topic = self._topics.get(partition.topic)
                if topic is not None and topic.cleanup == "delete":
                    place = partition.topic, partition.index
                    self.highest[place] = max(self.highest.get(place, 0), partition.log_start_offset)
