"""EDGE: makes a user in the store of a broker that runs alone and is stopped, for `semel user create --data-dir`."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from random import SystemRandom
from time import monotonic, time_ns

from semel_protocol.errors import KafkaError
from semel_storage.checkpoints import META_PROPERTIES
from semel_storage.disk.disk import DirectoryLocked
from semel_storage.disk.os_disk import OsDisk
from semel_storage.log_directory import LogDirectory, WrongDirectory

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.local_store import STORE_FILE, CorruptStoreError, LocalStore
from semel_broker.security.user_store import UserStore, puts_of_password
from semel_broker.world import World

NEW_NODE_ID = 0
"""The default of node.id. A broker with another one is started once before its first user is made."""


class OfflineUserError(Exception):
    """The user cannot be made. The message says why, and what to do."""


async def create_user(data_dir: str, name: str, password: str) -> None:
    """Give the store of the data directory a user with this password for every mechanism. The directory may be new.

    Raises OfflineUserError.
    """
    world = World(now_ms=lambda: time_ns() // 1_000_000, monotonic=monotonic, rng=SystemRandom(), disk=OsDisk())
    try:
        world.disk.mkdir(data_dir)
        if not world.disk.exists(f"{data_dir}/{META_PROPERTIES}"):
            _make_directory(world, data_dir)
        unlock = world.disk.lock(data_dir)
    except DirectoryLocked:
        raise OfflineUserError(
            f"{data_dir} is in use by a broker: stop it, or leave --data-dir out to connect to it"
        ) from None
    except WrongDirectory as error:
        raise OfflineUserError(str(error)) from None
    except OSError as error:
        raise OfflineUserError(f"{data_dir}: {error.strerror}; give a directory that this user may write to") from None
    try:
        await _create(world, f"{data_dir}/{STORE_FILE}", name, password)
    except (KafkaError, CorruptStoreError) as error:
        raise OfflineUserError(str(error)) from None
    finally:
        unlock()


def _make_directory(world: World, data_dir: str) -> None:
    """Make a new data directory of the broker 0, as its first start does. Raises WrongDirectory."""
    LogDirectory.open(
        world.disk,
        data_dir,
        node_id=NEW_NODE_ID,
        cluster_id=_new_uuid(world),
        directory_id=_new_uuid(world),
        event=world.log.info,
    ).abandon()


def _new_uuid(world: World) -> str:
    """A random id in Kafka's form: 22 characters of unpadded base64url."""
    return urlsafe_b64encode(world.rng.randbytes(16)).decode().rstrip("=")


async def _create(world: World, path: str, name: str, password: str) -> None:
    store = LocalStore.open(world.disk, path)
    try:
        feed = await Feed.open(store, world.log)
        try:
            users = UserStore(store, feed, b"", world.log)
            if users.credentials(name):
                raise OfflineUserError(f"the user {name} exists already: `semel user password {name}` changes it")
            users.check_name(name)
            await users.alter(puts_of_password(name, password, world))
        finally:
            await feed.close()
    finally:
        await store.close()
