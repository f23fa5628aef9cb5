"""Asks the cluster for what `semel top` shows at one moment: brokers, ends of partitions, transactions, groups.

Only requests of Kafka are used, so it works with Apache Kafka too. What a broker does not serve, or does not allow, is
left out, and the reason is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from semel import Admin, TopicPartition
from semel._admin.types import OPEN_STATES
from semel._edge import Edge
from semel.admin import LATEST, ClusterDescription, ConsumerGroupDescription, TransactionDescription
from semel.diagnose import OpenTransaction, describe_known, known_offsets, lag_of, open_transactions, total_lag
from semel.errors import BrokerResponseError, UnsupportedVersionError
from semel.structs import PartitionMetadata

DEAD = "Dead"
NOT_HERE = (UnsupportedVersionError, BrokerResponseError)
"""Errors of one part: the brokers do not serve the request, or refuse it. The other parts are shown."""


class GroupLag(msgspec.Struct, frozen=True):
    """A group with the sum of its lags; None where no end is known."""

    name: str
    state: str
    members: int
    lag: int | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment.

    at: the monotonic clock. now_ms: the wall clock. ends: the high watermarks, stable: the last stable offsets, where
    a leader answers. pins: the open transactions of partitions whose last stable offset is held back.
    missing: part -> why it is not shown.
    """

    at: float
    now_ms: int
    cluster: ClusterDescription
    partitions: tuple[PartitionMetadata, ...]
    ends: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    transactions: Sequence[TransactionDescription] = ()
    pins: Sequence[OpenTransaction] = ()
    groups: Sequence[GroupLag] = ()
    missing: Mapping[str, str] = {}

    @property
    def held_back(self) -> dict[TopicPartition, int]:
        """The offsets between the last stable offset and the high watermark, of partitions where there are some."""
        found = {at: end - self.stable[at] for at, end in self.ends.items() if at in self.stable}
        return {at: count for at, count in found.items() if count > 0}


async def take(admin: Admin, edge: Edge) -> Sample:
    """The cluster now. Raises KafkaError when no broker answers."""
    cluster = await admin.describe_cluster()
    topics = [topic for topic in await admin.describe_topics() if not topic.is_internal]
    partitions = tuple(each for topic in topics for each in topic.partitions)
    at = edge.monotonic()
    # The stable offset is requested first, so that it is never above the high watermark.
    stable = await known_offsets(admin, partitions, cluster.brokers, LATEST, read_committed=True)
    ends = await known_offsets(admin, partitions, cluster.brokers, LATEST)
    sample = Sample(at=at, now_ms=edge.now_ms(), cluster=cluster, partitions=partitions, ends=ends, stable=stable)
    missing: dict[str, str] = {}
    transactions: Sequence[TransactionDescription] = ()
    pins: Sequence[OpenTransaction] = ()
    groups: Sequence[GroupLag] = ()
    try:
        transactions, pins = await _transactions(admin, list(sample.held_back))
    except NOT_HERE as error:
        missing["transactions"] = str(error)
    try:
        groups = await _groups(admin)
    except NOT_HERE as error:
        missing["groups"] = str(error)
    return msgspec.structs.replace(sample, transactions=transactions, pins=pins, groups=groups, missing=missing)


async def _transactions(
    admin: Admin, held: Sequence[TopicPartition]
) -> tuple[list[TransactionDescription], list[OpenTransaction]]:
    listed = await admin.list_transactions(states=[state for state in OPEN_STATES if state != "PrepareEpochFence"])
    described = await describe_known(admin, [row.transactional_id for row in listed]) if listed else []
    pins = await open_transactions(admin, held) if held else []
    return [each for each in described if each.is_open], pins


async def _groups(admin: Admin) -> list[GroupLag]:
    names = [found.group_id for found in await admin.list_consumer_groups()]
    described: list[ConsumerGroupDescription] = await admin.describe_consumer_groups(names) if names else []
    living = [each for each in described if each.state != DEAD]
    lags = await lag_of(admin, living) if living else {}
    return [GroupLag(each.group_id, each.state, len(each.members), total_lag(lags[each.group_id])) for each in living]
