"""Wiring: what a broker is made of, in which order it starts and in which it stops. No logic."""

from __future__ import annotations

from asyncio import get_running_loop
from base64 import urlsafe_b64encode
from contextlib import AsyncExitStack

from semel_storage.checkpoints import META_PROPERTIES
from semel_storage.log_directory import LogDirectory

from semel_broker.cleaner import Cleaner
from semel_broker.cluster.local_store import LocalStore
from semel_broker.config import BrokerConfig, ConfigError
from semel_broker.context import Broker
from semel_broker.dispatch import Dispatcher
from semel_broker.groups.coordinator import GroupCoordinator
from semel_broker.producer_ids import ProducerIds
from semel_broker.server import Server
from semel_broker.topics import Topics
from semel_broker.txn.coordinator import TransactionCoordinator
from semel_broker.world import World

STOP_GRACE_S = 5.0
UNDIALLABLE = ("", "0.0.0.0", "::")  # noqa: S104 (to be refused)
STORE_FILE = "semel.store"


class Node:
    """A running broker. `port` is the one listened on; clients are told `broker.host` and `broker.port`."""

    def __init__(self, broker: Broker, server: Server, port: int, parts: AsyncExitStack) -> None:
        self.broker = broker
        self.server = server
        self.port = port
        self._parts = parts

    @classmethod
    async def start(cls, config: BrokerConfig, world: World) -> Node:
        """Recover what is in `log.dir` and serve. What has been started is stopped again if a later part fails.

        Raises DirectoryLocked, CorruptLog, CorruptStoreError, ConfigError, and OSError of the listening socket.
        """
        host = config.advertised_host_name or config.host_name
        if host in UNDIALLABLE:
            raise ConfigError(
                f"clients cannot dial {host or 'an empty host'}: say with --advertised-host (advertised.host.name) "
                "which address of this machine they are to use"
            )
        async with AsyncExitStack() as parts:
            broker = await _open(config, world, parts)
            server = Server(Dispatcher(broker), config, world.log, get_running_loop())
            port = await server.listen(config.host_name, config.port)
            broker.host, broker.port = host, config.advertised_port or port

            async def stop_server() -> None:
                server.stop_accepting()
                await broker.transactions.close()  # answers those who are held
                await broker.groups.close()  # answers those who wait in a rebalance
                await server.stop(STOP_GRACE_S)

            parts.push_async_callback(stop_server)
            return cls(broker, server, port, parts.pop_all())
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        """Answer what is in progress, then sync, snapshot and mark the data directory as cleanly shut down."""
        await self._parts.aclose()


async def _open(config: BrokerConfig, world: World, parts: AsyncExitStack) -> Broker:
    """Everything below the listening socket, each part to be closed after those that stand on it."""
    is_new = not world.disk.exists(f"{config.log_dir}/{META_PROPERTIES}")
    logs = LogDirectory.open(
        world.disk,
        config.log_dir,
        node_id=config.node_id,
        cluster_id=_new_uuid(world) if is_new else "",  # the first broker names the cluster
        directory_id=_new_uuid(world),
        event=world.log.info,
    )
    recovered = False
    parts.callback(lambda: logs.close() if recovered else logs.abandon())  # never mark as clean what was not recovered
    store = LocalStore.open(world.disk, f"{config.log_dir}/{STORE_FILE}")
    parts.push_async_callback(store.close)
    topics = await Topics.open(world=world, config=config, store=store, logs=logs)
    recovered = True
    parts.push_async_callback(topics.close)
    groups = GroupCoordinator(world, config, topics)
    groups.start()
    parts.push_async_callback(groups.close)
    producer_ids = ProducerIds(store)
    transactions = TransactionCoordinator(world, config, topics, producer_ids, groups.transaction_ended)
    transactions.start()
    parts.push_async_callback(transactions.close)
    cleaner = Cleaner(world, config, partitions=topics.partitions, checkpoint=logs.checkpoint)
    cleaner.start()
    parts.push_async_callback(cleaner.stop)
    return Broker(
        world=world,
        config=config,
        store=store,
        topics=topics,
        groups=groups,
        transactions=transactions,
        producer_ids=producer_ids,
        node_id=config.node_id,
        cluster_id=logs.cluster_id,
        host=config.host_name,
        port=config.port,
        log=world.log,
    )


def _new_uuid(world: World) -> str:
    """A random id as Kafka writes them: 22 characters of base64."""
    return urlsafe_b64encode(world.rng.randbytes(16)).decode().rstrip("=")
