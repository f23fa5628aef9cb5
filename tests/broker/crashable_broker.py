"""One disk in memory, and the topics of a broker over it. It can crash and start again."""

from random import Random

import pytest
from broker.harness import EventLog, batch
from semel_broker.cluster.local_store import LocalStore
from semel_broker.config.limits import Limits
from semel_broker.config.loading import BrokerConfig, load
from semel_broker.topics.topics import Topics
from semel_broker.world import World
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log_directory import LogDirectory

ROOT = "data"


class CrashableBroker:
    """One disk in memory, and the topics of a broker over it that can crash and start again."""

    def __init__(self, **settings: str) -> None:
        self.disk = MemoryDisk()
        self.log = EventLog()
        self.rng = Random(7)
        self.overrides = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        self.config: BrokerConfig
        self.topics: Topics
        self.store: LocalStore
        self.logs: LogDirectory

    async def start(self, limits: Limits | None = None) -> Topics:
        self.config = load(overrides=self.overrides)
        self.config.limits = limits or Limits()
        world = World(
            now_ms=lambda: 1_700_000_000_000, monotonic=lambda: 0.0, rng=self.rng, disk=self.disk, log=self.log
        )
        self.logs = LogDirectory.open(
            self.disk, ROOT, node_id=0, cluster_id="", directory_id="d", problem=self.log.error
        )
        self.store = LocalStore.open(self.disk, f"{ROOT}/semel.store")
        self.topics = await Topics.open(world=world, config=self.config, store=self.store, logs=self.logs)
        return self.topics

    async def stop(self) -> None:
        await self.topics.close()
        await self.store.close()
        self.logs.close()

    async def crash(self) -> Topics:
        self.disk.crash()
        return await self.start()


async def write(topics: Topics, name: str, index: int, *values: bytes) -> None:
    partition = topics.partition(name, index)
    data = batch(*values)
    result = partition.append(data, header=read_header(data))
    await partition.committed(result.last_offset + 1)


def refused(code: ErrorCode, words: str | None = None) -> "pytest.RaisesExc[KafkaError]":
    return pytest.raises(KafkaError, match=words, check=lambda error: error.code is code)
