"""The requests of members of the consumer protocol and their answers, independent of API versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from semel_broker.groups.consumer.model import Change, Classic, TopicFacts, TopicIdPartitions

JOIN = 0
LEAVE = -1


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """ConsumerGroupHeartbeat. None, and a timeout of -1: not changed since the member's last request. `regex` "": no
    regular expression (any more). `owned`: the partitions that the member owns. `may_read(topic)`: whether a regular
    expression may match the topic; authorization decides. `classic`: this is a JoinGroup, of a member of the classic
    protocol."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: TopicIdPartitions | None = None
    may_read: Callable[[str], bool] = lambda topic: True
    classic: Classic | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, as after a lost answer: it wants to hear its assignment."""
        return (
            self.rebalance_timeout_ms >= 0
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat. `assigned`: the partitions that the member has; None: as it knows."""

    member_id: str
    epoch: int
    assigned: TopicIdPartitions | None = None


class HeartbeatDecision(msgspec.Struct, frozen=True):
    """The changes to store, and the answer to give once they are in effect."""

    changes: tuple[Change, ...]
    answer: HeartbeatAnswer


class Catalog(msgspec.Struct, frozen=True):
    """The topics of the cluster. Internal ones are among them, because regular expressions match them in Apache Kafka
    too. `version` changes with each change of them.
    """

    version: int
    get: Callable[[str], TopicFacts | None]
    names: Callable[[], Iterable[str]]

    def facts(self, names: Iterable[str]) -> Mapping[str, TopicFacts]:
        """The topics of these names that exist."""
        found = {name: self.get(name) for name in sorted(names)}
        return {name: facts for name, facts in found.items() if facts is not None}


class ConsumerRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide (`group.consumer.max.size`, `group.consumer.assignors`)."""

    size_max: int = (1 << 31) - 1
    assignors: tuple[str, ...] = ("uniform", "range")
