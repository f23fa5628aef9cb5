"""The durable state of a broker: its data directory, and the store of its cluster."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import AsyncExitStack

from semel_storage.checkpoints import META_PROPERTIES
from semel_storage.disk.disk import MissingFile
from semel_storage.log_directory import LogDirectory

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.local_store import STORE_FILE, CorruptStoreError, LocalStore
from semel_broker.cluster.records import CLUSTER_ID
from semel_broker.cluster.store import Expect, OutcomeUnknownError, Put, Store
from semel_broker.cluster.timed_store import TimedStore
from semel_broker.config.loading import BrokerConfig, ConfigError
from semel_broker.world import World


class DataHome:
    """The store, its feed and the logs. `is_shared`: other brokers may use the store too.

    The owner sets `is_recovered` when all logs are open. Only then is a clean shutdown marked in the data directory.
    """

    def __init__(self, store: Store, feed: Feed, logs: LogDirectory, *, is_shared: bool) -> None:
        self.store = store
        self.feed = feed
        self.logs = logs
        self.is_shared = is_shared
        self.is_recovered = False

    @classmethod
    async def open(cls, config: BrokerConfig, world: World, store: Store | None, parts: AsyncExitStack) -> DataHome:
        """Open the store and the data directory; `parts` closes them. A new data directory gets the cluster's id; an
        existing one must have it.

        Raises ConfigError, DirectoryLocked, WrongDirectory, CorruptStoreError, StoreUnavailableError.
        """
        is_shared = store is not None or config.is_clustered
        if is_shared:
            store = TimedStore(store or _etcd_store(config, world), world.monotonic)
            parts.push_async_callback(store.close)
            logs = _open_logs(config, world, await _cluster_id(store, world))
        else:
            is_new = not world.disk.exists(f"{config.log_dir}/{META_PROPERTIES}")
            logs = _open_logs(config, world, _new_uuid(world) if is_new else "")
        home: DataHome | None = None
        # a data directory of which logs were opened, but not all recovered, is not marked as clean
        parts.callback(lambda: logs.close() if home is not None and home.is_recovered else logs.abandon())
        if store is None:
            _check_store_file(world, logs)
            _make_store_private(world, f"{config.log_dir}/{STORE_FILE}")
            store = LocalStore.open(world.disk, f"{config.log_dir}/{STORE_FILE}")
            parts.push_async_callback(store.close)
        feed = await Feed.open(store, world.log)
        parts.push_async_callback(feed.close)
        home = cls(store, feed, logs, is_shared=is_shared)
        return home


def _etcd_store(config: BrokerConfig, world: World) -> Store:
    """Raise ConfigError for a URL that is not an endpoint of etcd, and for files of TLS that cannot be used."""
    from semel_broker.cluster.etcd.login import EtcdLogin
    from semel_broker.cluster.etcd.store import EtcdStore  # needs h11, which a broker alone is installed without
    from semel_broker.cluster.etcd.tls import EtcdTls

    tls = None
    if any(url.startswith("https://") for url in config.etcd_endpoints):
        tls = EtcdTls.load(
            ca_file=config.etcd_tls_ca_file,
            certificate_file=config.etcd_tls_certificate_file,
            key_file=config.etcd_tls_key_file,
            server_name=config.etcd_tls_server_name,
        )
    login = EtcdLogin(config.etcd_user, config.etcd_password) if config.etcd_user else None
    try:
        return EtcdStore(config.etcd_endpoints, namespace=config.cluster_name, world=world, tls=tls, login=login)
    except ValueError as error:
        raise ConfigError(f"etcd.endpoints: {error}") from None


def _check_store_file(world: World, logs: LogDirectory) -> None:
    """Raise CorruptStoreError if there are partitions, but not the file that lists their topics."""
    path = f"{logs.root}/{STORE_FILE}"
    if not world.disk.exists(path) and (partitions := logs.partitions()):
        raise CorruptStoreError(
            f"{path} is missing, and {len(partitions)} partitions are here. It holds the topics and settings: "
            f"restore it from a copy of the data directory, or move the partitions' directories away to begin anew"
        )


def _make_store_private(world: World, path: str) -> None:
    """Let only the broker's user read the store, which an earlier version wrote for all users of the machine."""
    try:
        world.disk.make_private(path)
    except MissingFile:
        pass  # it is written private
    except OSError as error:
        world.log.warning(
            "store_file_not_private",
            file=path,
            error=error.strerror,
            do="it has credentials of users: let the broker's user own it, and remove the rights of other users",
        )


def _open_logs(config: BrokerConfig, world: World, cluster_id: str) -> LogDirectory:
    return LogDirectory.open(
        world.disk,
        config.log_dir,
        node_id=config.node_id,
        cluster_id=cluster_id,
        directory_id=_new_uuid(world),
        event=world.log.info,
        problem=world.log.error,
        left_logs_min=config.limits.left_logs_synced_together_min,
    )


async def _cluster_id(store: Store, world: World) -> str:
    """The id of the cluster. The first broker writes it; that may be this one."""
    while (entry := await store.get(CLUSTER_ID)) is None:
        try:
            await store.transact([Expect(CLUSTER_ID)], [Put(CLUSTER_ID, _new_uuid(world).encode())])
        except OutcomeUnknownError as error:
            world.log.info("cluster_id_unknown", error=str(error))
    return entry.value.decode()


def _new_uuid(world: World) -> str:
    """A random id in Kafka's form: 22 characters of unpadded base64url."""
    return urlsafe_b64encode(world.rng.randbytes(16)).decode().rstrip("=")
