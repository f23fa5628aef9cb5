"""The form of handlers, and their arguments: the broker's parts, and the circumstances of one request."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec
from semel_protocol.schema import Message

from semel_broker.answers import RequestOrder
from semel_broker.config.listeners import Endpoint
from semel_broker.counters.connections import UNKNOWN, Software
from semel_broker.counters.counters import Counters
from semel_broker.partitions.refused_batches import RefusedBatches
from semel_broker.scheduling.answer_memory import AnswerHolding
from semel_broker.scheduling.parting import Parting
from semel_broker.scheduling.recompressor import Recompressor
from semel_broker.scheduling.turns import AT_ONCE, Slices, Turns
from semel_broker.scheduling.work_turns import WorkTurns
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_broker.security.quotas.client_quotas import Mutations
from semel_broker.topics.advertised_brokers import AdvertisedBrokers
from semel_broker.txn.model.identity import ClientName
from semel_broker.world import Logger, World

if TYPE_CHECKING:
    from semel_broker.cluster.feed import Feed
    from semel_broker.cluster.registration import Registration
    from semel_broker.cluster.store import Store
    from semel_broker.config.loading import BrokerConfig
    from semel_broker.coordination.producer_ids import ProducerIds
    from semel_broker.groups.coordinator import GroupCoordinator
    from semel_broker.partitions.fetch_sessions import FetchSessions
    from semel_broker.security.acl_store import AclStore
    from semel_broker.security.quota_store import QuotaStore
    from semel_broker.security.sasl.session import SaslSession
    from semel_broker.security.user_store import UserStore
    from semel_broker.telemetry.instances import ClientTelemetry
    from semel_broker.topics.topics import Topics
    from semel_broker.txn.coordinator import TransactionCoordinator


INT32_MAX: Final = 2**31 - 1


class Broker(msgspec.Struct, kw_only=True):
    """One running broker as a plain record of its parts.

    `endpoints`: the addresses advertised to clients, by listener. `feed.image` is the state of the cluster
    as this broker knows it.
    """

    world: World
    config: BrokerConfig
    store: Store
    feed: Feed
    topics: Topics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    node_id: int
    cluster_id: str
    endpoints: dict[str, Endpoint]
    advertised_brokers: AdvertisedBrokers
    turns: Turns
    work_turns: WorkTurns
    recompressor: Recompressor
    log: Logger
    users: UserStore
    quotas: QuotaStore
    fetch_sessions: FetchSessions
    acls: AclStore | None = None
    """None: there is no authorizer, and every client may do everything."""
    registration: Registration | None = None
    """None: the broker runs alone, with a store of its own."""
    telemetry: ClientTelemetry | None = None
    """None: clients do not push metrics to this broker."""
    refused_batches: RefusedBatches = msgspec.field(default_factory=RefusedBatches)
    counters: Counters = msgspec.field(default_factory=Counters)


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """The circumstances of one request.

    `client_host` is the peer's address without port. `turn` counts the requests of the connection. `connection` is the
    number of the connection (0: none). `followers`: later requests of the connection that are received but not started.
    `answers`: the memory of the connection's answers; None: unbounded. `principal`: who the connection belongs to.
    `sasl`: the authentication of the connection; None: its listener has none. `software`: what the client says it is.
    `parting`: calls for the end of the connection. `order`: whether the next request of the connection may start.
    """

    broker: Broker
    api_version: int
    client_id: str
    client_host: str
    listener: str
    turn: int = 0
    connection: int = 0
    followers: int = 0
    answers: AnswerHolding | None = None
    principal: Principal = ANONYMOUS
    sasl: SaslSession | None = None
    software: Software = UNKNOWN
    client_port: int = 0
    parting: Parting = msgspec.field(default_factory=Parting)
    order: RequestOrder = msgspec.field(default_factory=RequestOrder)

    @property
    def answer_bytes_max(self) -> int:
        """The size limit in bytes of an answer that may be cut, such as that of a Fetch: the free memory."""
        return INT32_MAX if self.answers is None else self.answers.answer_bytes_max

    def slices(self, *, is_long: bool = True) -> Slices:
        """The slices of a request that may be long: other requests are answered between them."""
        return self.broker.turns.slices() if is_long else AT_ONCE

    def mutations(self, *, is_strict: bool) -> Mutations | None:
        """The quota of the client for changes of topics; None: it has none."""
        quotas = self.broker.quotas.quotas
        if not quotas.is_active:
            return None
        return quotas.mutations(self.principal.user, self.client_id, is_strict=is_strict, clock=get_running_loop().time)

    @property
    def client(self) -> ClientName:
        """Name and host of the client, for messages to people."""
        return ClientName(self.client_id, self.client_host)


Handler = Callable[[Any, RequestContext], Coroutine[Any, Any, Message | None]]
