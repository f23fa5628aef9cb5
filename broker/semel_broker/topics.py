"""The topics of this broker: their metadata in the store, their partitions opened when needed.

Published signatures; the bodies follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from semel_storage.log_config import LogConfig

from semel_broker.partition import Partition

INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")


class Topic(msgspec.Struct, kw_only=True):
    """A topic as this broker knows it. `config`: all values in force; `configs`: what the topic was given."""

    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    config: LogConfig

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class Topics:
    def get(self, name: str) -> Topic | None: ...
    def get_by_id(self, topic_id: bytes) -> Topic | None: ...
    def names(self) -> list[str]: ...
    def partition(self, name: str, index: int) -> Partition: ...
    def partitions(self) -> list[Partition]: ...
    async def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> Topic: ...
    async def ensure(self, name: str, *, partitions: int = -1, configs: Mapping[str, str] | None = None) -> Topic: ...
    async def delete(self, name: str) -> None: ...
    async def add_partitions(self, name: str, count: int) -> Topic: ...
    async def alter_configs(self, name: str, configs: Mapping[str, str | None]) -> Topic: ...
    async def close(self) -> None: ...
