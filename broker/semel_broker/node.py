"""The wiring of a broker: builds its parts, starts them in order, and stops them in reverse order."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from semel_protocol import extras
from semel_protocol.acls import Operation, ResourceType
from semel_protocol.api_key import ApiKey

from semel_broker.authorization.access import Access, Refusals
from semel_broker.authorization.audit_log import AuditLog
from semel_broker.authorization.audited import audited
from semel_broker.authorization.guard import guarded
from semel_broker.cluster.controller import Controller
from semel_broker.cluster.records import PRODUCER_ID_KEY, UNKNOWN_USERS, BrokerRecord
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import Store, shared_secret
from semel_broker.config.listeners import Listener, advertised_endpoints
from semel_broker.config.loading import BrokerConfig, ConfigError
from semel_broker.config.peer_listener import BrokerPrincipals
from semel_broker.config.principal_rules import PrincipalRules
from semel_broker.config.sasl_settings import OAuthSettings
from semel_broker.context import Broker, Handler
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.coordination.producer_owners import ProducerOwners
from semel_broker.counters.counters import Counters
from semel_broker.data_home import DataHome
from semel_broker.groups.coordinator import GroupCoordinator
from semel_broker.handlers import AUDITS, HANDLERS, NEEDS, NOT_AUDITED
from semel_broker.handlers.k01_sessions import checked_when_ready, with_sessions
from semel_broker.net.binding import is_wildcard
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.server import Server
from semel_broker.partitions.cleaner import Cleaner
from semel_broker.partitions.fetch_sessions import FetchSessions
from semel_broker.partitions.partition import Lease
from semel_broker.peer_handlers import PEER_VERSIONS, peer_handlers
from semel_broker.replication.peers import Peers, PeerSecurity
from semel_broker.replication.replicator import Replicator
from semel_broker.scheduling.folded_log import FoldedLog
from semel_broker.scheduling.recompressor import Recompressor
from semel_broker.scheduling.repeated_lines import RepeatedLines
from semel_broker.scheduling.turns import Turns
from semel_broker.scheduling.work_turns import WorkTurns
from semel_broker.security.acl_store import AclStore
from semel_broker.security.authorizer import Authorizer, Decision
from semel_broker.security.quota_store import QuotaStore
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.security.quotas.rate import Window
from semel_broker.security.sasl.mechanism import Mechanism
from semel_broker.security.sasl.mechanisms import mechanisms_of
from semel_broker.security.sasl.session import SaslListener
from semel_broker.security.user_store import UserStore
from semel_broker.telemetry.instances import ClientTelemetry
from semel_broker.topics.advertised_brokers import AdvertisedBrokers
from semel_broker.topics.topics import Topics
from semel_broker.txn.coordinator import TransactionCoordinator
from semel_broker.txn.markers.channel import ImageLeaders
from semel_broker.world import StopRequestedError, World

STOP_GRACE_S = 5.0
FETCH = ApiKey.FETCH.value


class Node:
    """A running broker. `ports`: the bound port of each listener, by its name; `port`: of the first one.

    Clients get the addresses `broker.endpoints`.
    """

    def __init__(
        self,
        broker: Broker,
        server: Server,
        ports: dict[str, int],
        controller: Controller,
        registration: Registration,
        parts: AsyncExitStack,
    ) -> None:
        self.broker = broker
        self.server = server
        self.controller = controller
        self.registration = registration
        self.is_stopping = False
        self.ports = ports
        self._parts = parts

    @property
    def port(self) -> int:
        return next(iter(self.ports.values()))

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        world: World,
        store: Store | None = None,
        first_user: tuple[str, str] | None = None,
    ) -> Node:
        """Recover `log.dir`, join the cluster, and serve. If a part fails, the parts started before it are stopped.

        `store`: the store of a cluster, closed by this broker; None: the one in the settings. `first_user`: name and
        password of a user that is made if there are no users yet. Raises DirectoryLocked, WrongDirectory,
        CorruptCheckpoint, CorruptStoreError, ConfigError, and OSError of the data directory and listening sockets.
        """
        log = FoldedLog(world.log, world.monotonic)
        world = msgspec.structs.replace(world, log=log)
        listeners = config.client_listeners
        setting = "advertised.listeners" if config.listeners else "--advertised-host (advertised.host.name)"
        for listener in listeners:
            if listener.advertised is not None:
                _check_reachable("clients", listener.advertised.host, setting)
        if config.is_clustered:
            _check_reachable("brokers", config.peer_listener.advertised.host, config.peer_listener.setting)
        async with AsyncExitStack() as parts:
            parts.callback(log.flush)
            audit = _audit(config, world, parts)
            home = await DataHome.open(config, world, store, parts)
            registration = Registration(world, config, home.store, home.feed)
            security = _peer_security(config, world) if home.is_shared else None
            peers = Peers(world, home.feed, config, security) if home.is_shared else None
            if peers is not None:
                parts.push_async_callback(peers.close)
                await peers.check_admitted()
            broker = await _open(config, world, home, registration, peers, parts)
            server = Server(
                Dispatcher(broker, _handlers(broker, audit), quotas=broker.quotas.quotas),
                config,
                world.log,
                get_running_loop(),
                broker.turns,
                may_keep_descriptor=world.may_keep_descriptor,
                unacknowledged=world.unacknowledged,
                hung_up=world.hung_up,
                quotas=broker.quotas.quotas,
                authentication_failed=None if audit is None else audit.authentication_failed,
            )
            parts.push_async_callback(server.abort)
            ports = await _bind(server, broker, audit, parts)
            broker.endpoints = advertised_endpoints(listeners, ports)
            peer_port = 0 if peers is None else await _listen_to_peers(broker, home, registration, peers, audit, parts)
            if first_user is not None:
                await broker.users.make_first(*first_user, world)
            controller = await _join(broker, home, registration, peer_port, parts)
            await server.serve()
            broker.topics.begin_opening()

            async def stop_server() -> None:
                await registration.leave(config.controlled_shutdown_max_wait_ms)
                server.stop_accepting()
                await broker.transactions.close()  # answers the held requests
                await broker.groups.close()  # answers the members that wait in a rebalance
                await server.stop(STOP_GRACE_S)

            parts.push_async_callback(stop_server)
            return cls(broker, server, ports, controller, registration, parts.pop_all())
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        """Hand leaderships over, answer requests in progress, sync and snapshot the logs, and mark a clean shutdown."""
        self.is_stopping = True
        await self._parts.aclose()


def _handlers(broker: Broker, audit: AuditLog | None) -> Mapping[int, Handler]:
    """The handlers of clients' requests: behind the authorizer and inside the audit, if there are any. Fetch sessions
    are outside of the authorizer, so that all partitions of a session are authorised at each fetch.
    """
    authorizer = None if broker.acls is None else broker.acls.authorizer
    handlers = dict(HANDLERS)
    if authorizer is not None:
        counters = broker.counters.security

        def count(access: Access, operation: Operation, kind: ResourceType, name: str, decision: Decision) -> None:
            counters.note_refused(operation.name, kind.name)

        notes = [count, Refusals(broker.log).note, *([] if audit is None else [audit.refused])]

        def note(*refusal: Any) -> None:
            for each in notes:
                each(*refusal)

        of_all = audit is not None and audit.has_everything
        permitted = dict.fromkeys(NOT_AUDITED, audit.permitted) if audit is not None and of_all else None
        handlers = guarded(HANDLERS, NEEDS, authorizer, note, permitted, broker.world.audit_is_behind)
        handlers[FETCH] = checked_when_ready(handlers[FETCH], authorizer)
    handlers[FETCH] = with_sessions(handlers[FETCH])
    return (
        handlers
        if audit is None or not audit.has_administration
        else audited(handlers, AUDITS, NEEDS, audit, authorizer)
    )


def _audit(config: BrokerConfig, world: World, parts: AsyncExitStack) -> AuditLog | None:
    if world.audit is None:
        return None
    call_later = get_running_loop().call_later
    audit = AuditLog(world.audit, world.now_ms, call_later, config.audit_log_allowed, world.audit_is_behind)
    parts.callback(audit.close)
    return audit


def _check_reachable(peers: str, host: str, option: str) -> None:
    if is_wildcard(host):
        raise ConfigError(
            f"{peers} cannot connect to {host or 'an empty host'}: give them an address of this machine with {option}"
        )


async def _bind(server: Server, broker: Broker, audit: AuditLog | None, parts: AsyncExitStack) -> dict[str, int]:
    """The bound port of each listener, by its name. Raises ConfigError, ListenError."""
    ports, config, world = {}, broker.config, broker.world
    for listener in config.client_listeners:
        tls, sasl, rules = None, None, PrincipalRules("")
        if listener.has_tls:
            if world.load_tls is None:
                raise ConfigError(f"listener {listener.name}: there is no TLS here; use the protocol PLAINTEXT")
            settings = config.tls_of(listener.name)
            tls, rules = world.load_tls(settings), PrincipalRules(settings.principal_mapping_rules)
        if listener.has_sasl:
            sasl = await _sasl(listener, broker, audit, parts)
        address = listener.address
        ports[listener.name] = await server.bind(address.host, address.port, listener.name, tls, rules.principal, sasl)
    return ports


async def _sasl(listener: Listener, broker: Broker, audit: AuditLog | None, parts: AsyncExitStack) -> SaslListener:
    """Raise ConfigError."""
    settings, world = broker.config.sasl_of(listener), broker.world
    oauth = None if settings.oauth is None else await _oauth(listener.name, settings.oauth, world, parts)
    return SaslListener(
        name=listener.name,
        protocol=listener.protocol,
        mechanisms=mechanisms_of(settings, broker.users, world, oauth),
        max_reauth_ms=settings.max_reauth_ms,
        failed_delay_ms=settings.failed_delay_ms,
        token_bytes_max=settings.token_bytes_max,
        limits=broker.config.limits,
        log=world.log,
        now_s=world.monotonic,
        now_ms=world.now_ms,
        authentication_failed=None if audit is None else audit.authentication_failed,
        counters=broker.counters.security,
    )


async def _oauth(
    listener: str, settings: OAuthSettings, world: World, parts: AsyncExitStack
) -> Callable[[], Mechanism]:
    """The factory of OAUTHBEARER exchanges. Raises ConfigError if this installation cannot check tokens."""
    try:
        from semel_broker.security.sasl.issuer_keys import IssuerKeys
        from semel_broker.security.sasl.oauth_bearer_exchange import OAuthBearerExchange
    except ModuleNotFoundError as error:
        raise ConfigError(extras.missing(f"listener {listener}: OAUTHBEARER", str(error.name), "oauth")) from None
    if world.read_jwks is None:
        raise ConfigError(f"listener {listener}: there is no OAUTHBEARER here")
    keys = IssuerKeys(settings, world.read_jwks, world)
    parts.push_async_callback(keys.close)
    await keys.start()
    return lambda: OAuthBearerExchange(keys.check)


async def _open(
    config: BrokerConfig,
    world: World,
    home: DataHome,
    registration: Registration,
    peers: Peers | None,
    parts: AsyncExitStack,
) -> Broker:
    """Build all parts below the listening socket. Each part is closed after the parts that use it.

    `peers` None: the broker runs alone.
    """
    lease = registration if home.is_shared else None
    counters, begun = Counters(), world.monotonic()
    topics = await _open_topics(config, world, home, lease)
    counters.recovery_seconds = world.monotonic() - begun
    home.is_recovered = True
    parts.push_async_callback(topics.close)
    groups = GroupCoordinator(world, config, topics, counters.groups)
    groups.start()
    parts.push_async_callback(groups.close)
    producer_ids = await _producer_ids(world, home)
    transactions = TransactionCoordinator(
        world,
        config,
        topics,
        producer_ids,
        groups.transaction_ended,
        leaders=ImageLeaders(home.feed.image) if home.is_shared else None,
        peers=peers,
        counters=counters.transactions,
    )
    transactions.start()
    parts.push_async_callback(transactions.close)
    checkpoint, space = home.logs.checkpoint, topics.local.space
    cleaner = Cleaner(world, config, partitions=topics.partitions, checkpoint=checkpoint, space=space)
    cleaner.start()
    parts.push_async_callback(cleaner.stop)
    return Broker(
        world=world,
        config=config,
        store=home.store,
        feed=home.feed,
        topics=topics,
        groups=groups,
        transactions=transactions,
        producer_ids=producer_ids,
        node_id=config.node_id,
        cluster_id=home.logs.cluster_id,
        endpoints={},
        advertised_brokers=AdvertisedBrokers(home.feed, world.monotonic),
        turns=Turns(get_running_loop(), world.monotonic),
        log=world.log,
        counters=counters,
        users=UserStore(home.store, home.feed, await _secret(config, world, home), world.log),
        acls=_acls(config, world, home),
        quotas=_quotas(config, world, home),
        fetch_sessions=FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            config.limits.fetch_session_partitions_max,
            world.rng,
            get_running_loop().time,
        ),
        telemetry=_telemetry(config, world, home, parts),
        registration=registration if home.is_shared else None,
        work_turns=WorkTurns(config.limits.record_work_per_turn),
        recompressor=Recompressor(config.limits.recompressed_at_once_bytes),
    )


async def _open_topics(config: BrokerConfig, world: World, home: DataHome, lease: Lease | None) -> Topics:
    try:
        return await Topics.open(
            world=world, config=config, store=home.store, feed=home.feed, logs=home.logs, lease=lease
        )
    except StopRequestedError:
        home.is_recovered = home.logs.was_clean  # the logs that are not open yet are as the last stop left them
        raise


def _telemetry(config: BrokerConfig, world: World, home: DataHome, parts: AsyncExitStack) -> ClientTelemetry | None:
    """The receiver of metrics of clients; None: neither a page of metrics nor a collector would get them."""
    forward = None
    if config.telemetry_otlp_endpoint:
        from semel_broker.telemetry.forward import Collector, Forwarder  # h11: only for a broker that needs it

        forward = Forwarder(Collector.parse(config.telemetry_otlp_endpoint), world.log)
        parts.push_async_callback(forward.close)
    elif world.read_otlp is None or not config.metrics_listener:
        return None
    return ClientTelemetry(world, home.feed, config, forward)


def _acls(config: BrokerConfig, world: World, home: DataHome) -> AclStore | None:
    if not config.has_authorizer:
        return None
    authorizer = Authorizer(config.super_user_names, allow_if_none=config.allow_everyone_if_no_acl_found)
    return AclStore(home.store, home.feed, authorizer, world.log)


async def _secret(config: BrokerConfig, world: World, home: DataHome) -> bytes:
    """The secret of which the salts of unknown users are made. A broker without SASL needs none."""
    if not any(listener.has_sasl for listener in config.client_listeners):
        return b""
    return await shared_secret(home.store, UNKNOWN_USERS, world)


async def _producer_ids(world: World, home: DataHome) -> ProducerIds:
    image = home.feed.image
    owners = ProducerOwners(
        await shared_secret(home.store, PRODUCER_ID_KEY, world),
        log=world.log,
        clock=world.monotonic,
        unbound_end=lambda: image.unbound_ids_end,
    )
    return ProducerIds(home.store, owners)


def _quotas(config: BrokerConfig, world: World, home: DataHome) -> QuotaStore:
    window = Window(config.quota_window_num, config.quota_window_size_seconds)
    mutations = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
    return QuotaStore(home.store, home.feed, ClientQuotas(window, mutations, world.log), world.log)


async def _listen_to_peers(
    broker: Broker,
    home: DataHome,
    registration: Registration,
    peers: Peers,
    audit: AuditLog | None,
    parts: AsyncExitStack,
) -> int:
    """Start replication and the listener for other brokers; return its port."""
    config, world = broker.config, broker.world
    replicator = Replicator(
        world,
        config,
        store=home.store,
        feed=home.feed,
        topics=broker.topics,
        peers=peers,
        registration=registration,
    )
    replicator.start()
    parts.push_async_callback(replicator.close)
    dispatcher = Dispatcher(
        broker, peer_handlers(replicator.sessions), PEER_VERSIONS, counters=broker.counters.peer_requests
    )
    # Turns of their own: other brokers do not wait behind clients.
    turns = Turns(get_running_loop(), world.monotonic)
    server = Server(
        dispatcher,
        config,
        world.log,
        get_running_loop(),
        turns,
        unacknowledged=world.unacknowledged,
        hung_up=world.hung_up,
        authentication_failed=None if audit is None else audit.authentication_failed,
        handshake_lines=RepeatedLines(world.monotonic),  # a broker that is refused tries again and again
    )
    parts.push_async_callback(server.abort)
    listener, security = config.peer_listener, peers.security
    address = listener.address
    if security is None:
        port = await server.bind(address.host, address.port, listener.name)
    else:
        assert world.load_tls is not None, "checked by _peer_security"
        tls = world.load_tls(config.tls_of(listener.name))
        port = await server.bind(address.host, address.port, listener.name, tls, security.principals.principal)
        server.reload_too(listener.name, security.tls)
    await server.serve()
    return port


def _peer_security(config: BrokerConfig, world: World) -> PeerSecurity | None:
    """The TLS between brokers; None: plaintext. Raises ConfigError."""
    listener = config.peer_listener
    if not listener.has_tls:
        return None
    if world.load_peer_tls is None or world.load_tls is None:
        raise ConfigError(f"listener {listener.name}: there is no TLS here; use the protocol PLAINTEXT")
    settings = config.tls_of(listener.name)
    principals = BrokerPrincipals(PrincipalRules(settings.principal_mapping_rules), config.broker_principal_names)
    return PeerSecurity(world, world.load_peer_tls(settings), principals)


async def _join(
    broker: Broker, home: DataHome, registration: Registration, peer_port: int, parts: AsyncExitStack
) -> Controller:
    """Register in the cluster: from now on this broker has roles while its session lives."""
    config = broker.config
    registration.on_admitted.append(broker.topics.local.take_roles)
    registration.on_lost.append(broker.topics.local.resign)
    registration.offline = broker.topics.local.offline
    broker.topics.local.on_offline.append(registration.offline_changed)
    if home.is_shared:  # a broker alone has no other one that could lead, and its store is on the same disk
        registration.hangs = lambda: broker.topics.local.hangs.stops_writes
        broker.topics.local.hangs.listeners.append(registration.offline_changed)
    parts.push_async_callback(registration.close)
    controller = Controller(broker.world, config, broker.store, broker.feed, registration)
    controller.start()
    parts.push_async_callback(controller.close)
    first = next(iter(broker.endpoints.values()))
    await registration.register(
        BrokerRecord(
            node_id=broker.node_id,
            incarnation="",
            directory_id=home.logs.directory_id,
            host=first.host,
            port=first.port,
            endpoints=broker.endpoints if config.listeners else msgspec.UNSET,
            peer_host=config.peer_listener.advertised.host if home.is_shared else "",
            peer_port=(config.peer_listener.advertised.port or peer_port) if home.is_shared else 0,
            rack=config.broker_rack,
            is_synced=config.durability == "fsync",
        )
    )
    return controller
