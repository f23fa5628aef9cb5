"""Users in the store of a cluster: every broker follows them, and unknown users look the same on all brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
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
from semel_broker.cluster.records import UNKNOWN_USERS, ScramCredential
from semel_broker.cluster.store import shared_secret
from semel_broker.security.unknown_users import SHAPES_MAX
from semel_broker.security.user_store import UserStore, delete, put
from semel_broker.world import SilentLogger, World
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.scram import ScramMechanism
from semel_storage.disk.memory_disk import MemoryDisk
from support.three import EtcdAndThreeBrokers

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
    yield [UserStore(store, feed, await shared_secret(store, UNKNOWN_USERS, world), SilentLogger()) for feed in feeds]
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


@pytest.mark.proves("scram")
@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_nothing_in_the_first_answer_tells_an_unknown_user_from_a_known_one(
    brokers: list[UserStore], mechanism: ScramMechanism
) -> None:
    """Shapes of unknown users are those of users, each with some of the names, and salts look as random as theirs."""
    users, _ = brokers
    shapes = {(4096, 32), (8192, 16), (16_384, 100)}
    puts = [
        put(f"user-{i}-{n}", mechanism, i, Random(n).randbytes(n), bytes(mechanism.digest_bytes)) for i, n in shapes
    ]
    await users.alter([*puts, put("other", next(iter(set(ScramMechanism) - {mechanism})), 5000, b"s", bytes(64))])
    names = [f"name-{number}" for number in range(600)]
    seen = Counter(shape(users.find(name, mechanism)[0]) for name in names)
    assert set(seen) == shapes
    assert min(seen.values()) > 150
    assert len({users.find(name, mechanism)[0].salt for name in names}) == len(names)
    assert {shape(users.find("other", mechanism)[0])} <= shapes


async def test_an_unknown_user_keeps_its_shape_while_the_set_of_shapes_is_the_same(brokers: list[UserStore]) -> None:
    one, other = brokers
    names = [f"name-{number}" for number in range(300)]
    await one.alter([put(f"u{salt}", SHA256, 4096, bytes(salt), bytes(32)) for salt in (8, 16, 24)])
    await asyncio.sleep(0.1)
    before = {name: one.find(name, SHA256) for name in names}
    assert before == {name: other.find(name, SHA256) for name in names}
    await one.alter([put("more of the same", SHA256, 4096, bytes(8), bytes(32)), delete("u8", SHA256)])
    assert before == {name: one.find(name, SHA256) for name in names}
    await one.alter([delete("u16", SHA256)])
    gone = [name for name in names if shape(before[name][0]) == (4096, 16)]
    assert 50 < len(gone) < 150
    assert [name for name in names if one.find(name, SHA256) != before[name]] == gone


@pytest.mark.proves("scram")
async def test_plain_takes_as_long_for_an_unknown_user_as_for_a_user(brokers: list[UserStore]) -> None:
    """The work is that of a mechanism and of a shape that some user is checked with."""
    users, _ = brokers
    await users.alter(
        [
            put("both", SHA256, 8192, bytes(16), bytes(32)),
            put("both", SHA512, 16_384, bytes(16), bytes(64)),
            put("one", SHA512, 4096, bytes(20), bytes(64)),
        ]
    )
    found = [users.find_any(f"name-{number}") for number in range(100)]
    assert {(mechanism, *shape(credential)) for mechanism, credential, _ in found} == {
        (SHA256, 8192, 16),
        (SHA512, 4096, 20),
    }
    assert not any(is_known for *_, is_known in found)


async def test_many_shapes_do_not_make_a_login_of_an_unknown_user_dear(brokers: list[UserStore]) -> None:
    users, _ = brokers
    await users.alter([put(f"u{salt}", SHA256, 4096, bytes(salt), bytes(32)) for salt in range(1, 301)])
    assert len({shape(users.find(f"name-{number}", SHA256)[0]) for number in range(2000)}) == SHAPES_MAX


def shape(credential: ScramCredential) -> tuple[int, int]:
    return credential.iterations, len(credential.salt)


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
    three = EtcdAndThreeBrokers(tmp_path, listeners="PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0")
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
