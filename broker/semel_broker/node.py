"""Wiring: what a broker is made of, in which order it starts and in which it stops. No logic."""

from __future__ import annotations

from asyncio import get_running_loop
from contextlib import AsyncExitStack

from semel_storage.log_directory import LogDirectory

from semel_broker import dynamic_configs
from semel_broker.cleaner import Cleaner
from semel_broker.cluster.local_store import LocalStore
from semel_broker.config import BrokerConfig
from semel_broker.context import Broker
from semel_broker.dispatch import Dispatcher
from semel_broker.groups.coordinator import GroupCoordinator
from semel_broker.producer_ids import ProducerIds
from semel_broker.server import Server
from semel_broker.topics import Topics
from semel_broker.world import World

STOP_GRACE_S = 5.0
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
        async with AsyncExitStack() as parts:
            broker = await _open(config, world, parts)
            server = Server(Dispatcher(broker), config, world.log, get_running_loop())
            port = await server.listen(config.host_name, config.port)
            broker.host = config.advertised_host_name or config.host_name
            broker.port = config.advertised_port or port

            async def stop_server() -> None:
                server.stop_accepting()
                await broker.groups.stop()
                await server.stop(STOP_GRACE_S)

            parts.push_async_callback(stop_server)
            return cls(broker, server, port, parts.pop_all())
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        """Answer what is in progress, then sync, snapshot and mark the data directory as cleanly shut down."""
        await self._parts.aclose()
