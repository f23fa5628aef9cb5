"""EDGE: aiokafka's `partitioner`: the default one as an object that can be called."""

from __future__ import annotations

import random
from collections.abc import Sequence

from semel_protocol.hashes import murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """The partition of a key by murmur2, as Kafka's; a random one that has a leader for records without key.

    As `partitioner` of a producer it stands for the producer's own default, which fills one batch after the other for
    records without key (KIP-480).
    """

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return random.choice(available or all_partitions)  # noqa: S311  (spreads load)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]
