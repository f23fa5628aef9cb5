"""The sizes of replicas on disk, as far as brokers answer and the principal may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from semel import Admin, TopicPartition
from semel.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)

ANSWER_TIMEOUT_MS = 2_000
NEEDS_DESCRIBE = "Sizes on disk are not shown: they need DESCRIBE on the cluster."
NOT_SERVED = "Sizes on disk are not shown: these brokers do not serve DescribeLogDirs."


class Sizes(msgspec.Struct):
    """by_place: bytes of a partition's replica by broker. by_broker: of all replicas there; a broker that does not
    answer is left out. problem: why nothing is known.
    """

    by_place: dict[TopicPartition, dict[int, int]] = {}
    by_broker: dict[int, int] = {}
    problem: str | None = None

    def of(self, places: Iterable[TopicPartition], leaders: Mapping[TopicPartition, int]) -> int | None:
        """The bytes of the leaders' replicas; None when one of them is not known."""
        found = [self.by_place.get(at, {}).get(leaders[at]) for at in places]
        known = [size for size in found if size is not None]
        return sum(known) if len(known) == len(found) else None


async def sizes_of(admin: Admin, node_ids: Iterable[int], partitions: Iterable[TopicPartition] | None = None) -> Sizes:
    """The sizes of these partitions, or of all."""
    asked = list(node_ids)
    wanted = None if partitions is None else list(partitions)
    sizes = Sizes()

    async def of_node(node_id: int) -> None:
        try:
            directories = (await admin.describe_log_dirs([node_id], wanted, ANSWER_TIMEOUT_MS))[node_id]
        except (KafkaConnectionError, KafkaTimeoutError):
            return
        sizes.by_broker[node_id] = 0
        for directory in directories:
            for at, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes.by_place.setdefault(at, {})[node_id] = replica.size_bytes
                sizes.by_broker[node_id] += replica.size_bytes

    for outcome in await asyncio.gather(*map(of_node, asked), return_exceptions=True):
        if isinstance(outcome, ClusterAuthorizationFailedError):
            return Sizes(problem=NEEDS_DESCRIBE)
        if isinstance(outcome, UnsupportedVersionError):
            return Sizes(problem=NOT_SERVED)
        if outcome is not None:
            raise outcome
    return sizes
