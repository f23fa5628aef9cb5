"""The kinds of stores under one test suite: how each is opened and crashed, loses old changes, and loses a session.

Another kind of store joins the suite with a `StoreSetup` of its own.
"""

from __future__ import annotations

import abc
import asyncio
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic, time_ns
from typing import Any

import pytest
from semel_broker.cluster import local_watch
from semel_broker.cluster.etcd.session import EtcdSession
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.store import Put, Session, Store
from semel_broker.world import World
from semel_storage.disk.disk import Disk
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.disk.os_disk import OsDisk
from support.etcd import EtcdProcess

namespaces = count()


def world(disk: Disk | None = None) -> World:
    return World(now_ms=lambda: time_ns() // 1_000_000, monotonic=monotonic, rng=Random(1), disk=disk or MemoryDisk())


class StoreSetup(abc.ABC):
    """One kind of store, new and empty."""

    store: Store

    @abc.abstractmethod
    async def crash(self) -> Store:
        """Crash the process or the disk that keeps the data, and start it again.

        Returns the store to use from now on.
        """

    @abc.abstractmethod
    async def forget(self) -> None:
        """Make the store drop all old changes, so that no watch can begin before now."""

    @abc.abstractmethod
    async def holder_dies(self, session: Session) -> Store:
        """Kill the process that holds the session, and wait until the session has ended.

        Returns a store of another process.
        """

    async def close(self) -> None:
        await self.store.close()


class LocalStoreSetup(StoreSetup):
    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.path = f"{directory}/semel.store"
        self.store = LocalStore.open(disk, self.path)

    async def crash(self) -> Store:
        if isinstance(self.disk, MemoryDisk):
            self.disk.crash()
        self.store = LocalStore.open(self.disk, self.path)
        return self.store

    async def forget(self) -> None:
        for i in range(local_watch.TRANSACTIONS_KEPT + 1):
            await self.store.transact([], [Put("forget", b"%d" % i)])

    async def holder_dies(self, session: Session) -> Store:
        return await self.crash()  # no other process can hold the session


class EtcdStoreSetup(StoreSetup):
    def __init__(self, process: EtcdProcess) -> None:
        self.process = process
        self.namespace = f"/semel-tests/{next(namespaces)}"
        self.store = self.another()

    def another(self, **settings: Any) -> EtcdStore:
        return EtcdStore([self.process.url], namespace=self.namespace, world=world(), **settings)

    async def crash(self) -> Store:
        self.process.kill()
        await asyncio.to_thread(self.process.start)
        return self.store

    async def forget(self) -> None:
        await self.store.transact([], [Put("forget", b"")])
        self.process.compact((await self.store.list("")).revision)

    async def holder_dies(self, session: Session) -> Store:
        assert isinstance(session, EtcdSession)
        session.abandon()
        return self.store


def build(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> StoreSetup:
    if kind == "memory":
        disk = MemoryDisk()
        disk.mkdir("data")
        return LocalStoreSetup(disk, "data")
    if kind == "file":
        return LocalStoreSetup(OsDisk(), str(tmp_path))
    return EtcdStoreSetup(request.getfixturevalue("etcd_process"))
