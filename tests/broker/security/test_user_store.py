"""Users in the store of a cluster: every broker follows them, and unknown users look the same on all brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from broker.sasl_login import log_in
from broker.wire import Wire
from semel import Admin
from semel.admin import ScramCredentialInfo, UserScramCredentialUpsertion
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.local_store import LocalStore
from semel_broker.security.user_store import UserStore, delete, put, unknown_users_secret
from semel_broker.world import SilentLogger, World
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.scram import ScramMechanism
from semel_storage.disk.memory_disk import MemoryDisk
from support.three import Three

SHA256, SHA512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
NAMES = ("alice", "a/b", "ü ,=%2F", "..")


@pytest.fixture
def world() -> World:
    return World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=MemoryDisk())


@pytest.fixture
async def brokers(world: World) -> AsyncIterator[list[UserStore]]:
    """The users of two brokers that share a store."""
    world.disk.mkdir("data")
    store = LocalStore.open(world.disk, "data/store")
    feeds = [await Feed.open(store, world.log) for _ in range(2)]
    yield [UserStore(store, feed, await unknown_users_secret(store, world), SilentLogger()) for feed in feeds]
    for feed in feeds:
        await feed.close()
    await store.close()


async def test_every_broker_follows_every_change(brokers: list[UserStore]) -> None:
    one, other = brokers
    await one.alter([put(name, mechanism, 4096, b"s", bytes(32)) for name in NAMES for mechanism in (SHA256, SHA512)])
    await asyncio.sleep(0.1)
    assert one.names == other.names == sorted(NAMES)
    assert all(one.credentials(name) == other.credentials(name) for name in NAMES)
    await other.alter([delete("alice", SHA256), delete("a/b", SHA256), delete("a/b", SHA512)])
    await asyncio.sleep(0.1)
    assert one.names == other.names == sorted(set(NAMES) - {"a/b"})
    assert list(one.credentials("alice")) == [SHA512]
    assert one.find("alice", SHA256)[1] is False


async def test_an_unknown_user_looks_the_same_on_every_broker(brokers: list[UserStore]) -> None:
    one, other = brokers
    for mechanism in ScramMechanism:
        credential, is_known = one.find("mallory", mechanism)
        assert (credential, is_known) == other.find("mallory", mechanism)
        assert not is_known
        assert credential.salt != one.find("trudy", mechanism)[0].salt
        assert len(credential.salt) == 32
        assert len(credential.stored_key) == mechanism.digest_bytes


@pytest.mark.parametrize(
    ("name", "iterations", "salt", "salted"),
    [
        ("", 4096, b"s", bytes(32)),
        ("x" * 1001, 4096, b"s", bytes(32)),
        ("a\0b", 4096, b"s", bytes(32)),
        ("a", 4095, b"s", bytes(32)),
        ("a", 16_385, b"s", bytes(32)),
        ("a", 4096, b"", bytes(32)),
        ("a", 4096, bytes(1001), bytes(32)),
        ("a", 4096, b"s", bytes(31)),
        ("a", 4096, b"s", b""),
    ],
)
async def test_credentials_that_are_refused(
    brokers: list[UserStore], name: str, iterations: int, salt: bytes, salted: bytes
) -> None:
    with pytest.raises(KafkaError) as caught:
        brokers[0].check(name, SHA256, iterations, salt, salted)
    assert caught.value.code == ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.mark.real_time
@pytest.mark.thorough
async def test_a_user_made_at_one_broker_logs_in_at_each(tmp_path: Path) -> None:
    """Three processes and an etcd."""
    three = Three(tmp_path, listeners="PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0")
    three.start()
    try:
        async with Admin(bootstrap_servers=f"127.0.0.1:{three.brokers[1].ports['PLAINTEXT']}") as admin:
            await admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", ScramCredentialInfo(SHA512), "a kettle")]
            )
        await asyncio.sleep(1)  # the promise: in force at every broker within a second
        for broker in three.brokers.values():
            wire = await Wire.connect(broker.ports["SASL_PLAINTEXT"])
            assert (await log_in(wire, "alice", "a kettle", "SCRAM-SHA-512")).error_code == ErrorCode.NONE
            await wire.close()
    finally:
        three.stop()
