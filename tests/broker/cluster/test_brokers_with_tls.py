"""Brokers that authenticate each other by mTLS on their listener. No other client is served there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from broker.wire import EventLog, Wire, batch
from semel_broker.cluster.local_store import LocalStore
from semel_broker.config.loading import ConfigError, load
from semel_broker.net.peer_tls import ClientTls
from semel_broker.net.tls_session import ServerTls
from semel_broker.node import Node
from semel_broker.peer_handlers import PEER_VERSIONS
from semel_broker.testing.authority import Authority
from semel_broker.world import World
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestReplicaState
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from semel_protocol.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest
from semel_protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest
from semel_protocol.schema import Message
from semel_storage.disk.memory_disk import MemoryDisk
from support.virtual_time import disk_here, loop_time, wall_ms

pytestmark = pytest.mark.real_time
WAIT_S = 10
BROKERS = "User:broker-1;User:broker-2;User:broker-3"
NAME_ALONE = "RULE:^CN=([^,]+),.*$/$1/"
"""The principal of a certificate is the name in its subject."""


class SharedStore(LocalStore):
    """The store of several brokers in one process: a broker that stops does not close it."""

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    for number in (1, 2, 3):
        made.issue(f"broker-{number}", "127.0.0.1")
    made.issue("client", "127.0.0.1")
    made.issue("elsewhere", "elsewhere.invalid")
    return made


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("other"))
    made.issue("broker-3", "127.0.0.1")
    return made


class TlsNodes:
    """Nodes over one store. `tls`: settings of all of them."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self.directory, self.authority = directory, authority
        disk = MemoryDisk()
        disk.mkdir("store")
        self.store = SharedStore.open(disk, "store/semel.store")
        self.nodes: dict[int, Node] = {}
        self.logs: dict[int, EventLog] = {}
        self.wires: list[Wire] = []

    async def start(self, number: int, **settings: str) -> Node:
        log = self.logs[number] = EventLog()
        world = World(
            now_ms=wall_ms,
            monotonic=loop_time,
            rng=Random(),
            disk=disk_here(),
            log=log,
            load_tls=lambda tls: ServerTls(tls, log),
            load_peer_tls=lambda tls: ClientTls(tls, log),
        )
        directory = self.directory / str(number)
        directory.mkdir(exist_ok=True)
        given = {
            "node.id": str(number),
            "log.dir": str(directory),
            "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.location": str(self.authority.directory / f"broker-{number}.pem"),
            "ssl.truststore.location": str(self.authority.ca_file),
            "ssl.principal.mapping.rules": NAME_ALONE,
            "broker.principals": BROKERS,
            "etcd.endpoints": "http://unused",
            "durability": "os",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        config = load(overrides=[f"{name}={value}" for name, value in given.items() if value])
        self.nodes[number] = await Node.start(config, world, self.store)
        return self.nodes[number]

    def peer_port(self, number: int) -> int:
        stored = self.nodes[number].broker.feed.image.registration(number)
        assert stored is not None
        return stored.value.peer_port

    async def client(self, number: int) -> Wire:
        wire = await Wire.connect(self.nodes[number].port)
        self.wires.append(wire)
        return wire

    async def to_peer_port(self, number: int, certificate: str | None) -> Wire:
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        context.check_hostname = False
        if certificate is not None:
            context.load_cert_chain(self.authority.directory / f"{certificate}.pem")
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.peer_port(number), ssl=context))
        self.wires.append(wire)
        return wire

    def failure(self, number: int) -> dict[str, object]:
        (line,) = self.logs[number].of("tls_handshake_failed")
        return line

    async def replicated(self, topic: str, *replicas: int) -> None:
        """Create a topic whose replicas are all in sync, and write to it with acks=all."""
        wire = await self.client(replicas[0])
        row = CreateTopicsRequestTopic(
            name=topic, num_partitions=1, replication_factor=len(replicas), assignments=[], configs=[]
        )
        (made,) = (await wire.call(CreateTopicsRequest(topics=[row], timeout_ms=5000, validate_only=False))).topics
        assert made.error_code == 0, made.error_message
        await until(lambda: self.in_sync(topic) == set(replicas))
        leader = self.leader(topic)
        to_leader = await self.client(leader)
        assert (await to_leader.produce(topic, batch(b"a"))).error_code == 0

    def _state(self, topic: str) -> Any:
        for node in self.nodes.values():
            for view in node.broker.feed.image.partitions():
                if view.topic == topic:
                    return view.state
        return None

    def leader(self, topic: str) -> int:
        return int(self._state(topic).leader)

    def in_sync(self, topic: str) -> set[int]:
        state = self._state(topic)
        return set() if state is None else set(state.isr)

    async def close(self) -> None:
        for wire in self.wires:
            await wire.close()
        for node in self.nodes.values():
            await node.stop()
        await LocalStore.close(self.store)


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)  # other sockets: there is nothing to await


@pytest.fixture
async def brokers(tmp_path: Path, authority: Authority) -> AsyncIterator[TlsNodes]:
    made = TlsNodes(tmp_path, authority)
    yield made
    await made.close()


async def test_records_are_replicated_over_tls(brokers: TlsNodes) -> None:
    for number in (1, 2, 3):
        await brokers.start(number, default_replication_factor="3", min_insync_replicas="3")
    await brokers.replicated("t", 1, 2, 3)
    for log in brokers.logs.values():
        assert not log.of("tls_handshake_failed")
        assert not log.of("peer_refused")
    assert "INTERNAL" not in brokers.nodes[1].ports, "clients do not get this listener"


async def test_the_short_form_has_tls_at_peer_port(brokers: TlsNodes) -> None:
    short = {
        "listeners": "",
        "listener_security_protocol_map": "",
        "inter_broker_listener_name": "",
        "port": "0",
        "security_inter_broker_protocol": "SSL",
        "default_replication_factor": "2",
    }
    for number in (1, 2):
        await brokers.start(number, **short)
    await brokers.replicated("t", 1, 2)
    stranger = await brokers.to_peer_port(1, "client")
    assert await stranger.closed_by_peer()
    assert brokers.failure(1)["listener"] == "PEERS"


@pytest.mark.proves("invalid-certificates")
@pytest.mark.parametrize(
    ("trusts", "reason", "words"),
    [
        ("other", "closed_in_handshake", "peer_certificate_not_trusted"),
        ("both", "client_certificate_not_trusted", "that broker refuses this broker's certificate"),
    ],
)
async def test_a_broker_with_a_certificate_of_another_ca_stays_out(
    brokers: TlsNodes, tmp_path: Path, other_authority: Authority, trusts: str, reason: str, words: str
) -> None:
    for number in (1, 2):
        await brokers.start(number, default_replication_factor="2")
    both = tmp_path / "both.pem"
    both.write_text(brokers.authority.ca_file.read_text() + other_authority.ca_file.read_text())
    trusted = {"both": both, "other": other_authority.ca_file}
    with pytest.raises(ConfigError, match=r"this broker cannot join the cluster: broker . at .*") as refused:
        await brokers.start(
            3,
            ssl_truststore_location=str(trusted[trusts]),
            ssl_keystore_location=str(other_authority.directory / "broker-3.pem"),
        )
    assert words in str(refused.value)
    await until(lambda: brokers.logs[1].of("tls_handshake_failed"))
    assert brokers.failure(1)["reason"] == reason
    assert brokers.nodes[1].broker.feed.image.registration(3) is None
    await brokers.replicated("t", 1, 2)


@pytest.mark.parametrize(
    ("days", "words"), [(365, "unable to get local issuer certificate"), (-1, "certificate has expired")]
)
async def test_a_certificate_that_the_own_settings_refuse_is_not_shown_to_others(
    brokers: TlsNodes, tmp_path: Path, days: int, words: str
) -> None:
    """The broker checks its certificate at the start and after each change of the file.

    A refused one does not replace the one in use.
    """
    wrong = (Authority(tmp_path / "wrong") if days > 0 else brokers.authority).issue("broker-9", "127.0.0.1", days=days)
    with pytest.raises(
        ConfigError, match=r"other brokers would refuse the certificate of ssl.keystore.location"
    ) as one:
        await brokers.start(1, ssl_keystore_location=str(wrong))
    assert words in str(one.value)
    file = tmp_path / "broker-1.pem"
    file.write_bytes((brokers.authority.directory / "broker-1.pem").read_bytes())
    await brokers.start(1, ssl_keystore_location=str(file))
    wrong.replace(file)
    await until(lambda: len(brokers.logs[1].of("certificates_not_reloaded")) == 2)  # both directions
    await brokers.start(2)
    assert not brokers.logs[2].of("peer_refused")


async def test_a_refused_broker_that_tries_again_has_one_line(brokers: TlsNodes) -> None:
    await brokers.start(1)
    for _ in range(20):
        wire = await brokers.to_peer_port(1, "client")
        assert await wire.closed_by_peer()
    line = brokers.failure(1)
    assert line["reason"] == "not_a_broker"
    assert line["error"] == "broker.principals does not have User:client"
    assert "add its principal to broker.principals" in str(line["do"])


async def test_a_broker_whose_own_principal_is_not_that_of_a_broker_does_not_start(brokers: TlsNodes) -> None:
    with pytest.raises(ConfigError, match=r"broker.principals does not have User:client; other brokers would"):
        await brokers.start(1, ssl_keystore_location=str(brokers.authority.directory / "client.pem"))


@pytest.mark.proves("invalid-certificates")
async def test_a_broker_whose_certificate_has_another_host_is_refused(brokers: TlsNodes) -> None:
    everywhere = f"{BROKERS};User:elsewhere"
    elsewhere = str(brokers.authority.directory / "elsewhere.pem")
    await brokers.start(1, ssl_keystore_location=elsewhere, broker_principals=everywhere)
    with pytest.raises(ConfigError, match="wrong_host"):
        await brokers.start(2, broker_principals=everywhere)
    (line,) = brokers.logs[2].of("peer_refused")
    assert "issue that broker's certificate for the address that it advertises" in str(line["do"])
    lax = {"broker_principals": everywhere, "ssl_endpoint_identification_algorithm": " "}
    await brokers.start(2, **lax)  # it no longer looks at the host


@pytest.mark.proves("requests-of-brokers")
async def test_a_listener_that_shows_the_certificate_of_a_client_is_not_taken_for_a_broker(brokers: TlsNodes) -> None:
    """The host name may match, but the certificate is not one of a broker."""
    client = str(brokers.authority.directory / "client.pem")
    await brokers.start(1, ssl_keystore_location=client, broker_principals=f"{BROKERS};User:client")
    with pytest.raises(ConfigError, match=r"its certificate: broker.principals does not have User:client"):
        await brokers.start(2)


async def test_a_broker_that_others_accept_starts_while_one_refuses_it(brokers: TlsNodes) -> None:
    await brokers.start(1, broker_principals=BROKERS.replace("User:broker-3", "User:none"))
    await brokers.start(2)
    await brokers.start(3)
    (line,) = brokers.logs[3].of("peer_refused")
    assert line["reason"] in ("closed_after_handshake", "certificate_refused")
    assert brokers.failure(1)["reason"] == "not_a_broker"


# --- none but brokers


def commit_marker() -> Message:
    topic = WriteTxnMarkersRequestTopic(name="t", partition_indexes=[0])
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequestMarker(
                producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
            )
        ]
    )


REQUESTS: dict[int, Message] = {
    1: FetchRequest(
        replica_state=FetchRequestReplicaState(replica_id=2), max_wait_ms=0, min_bytes=0, isolation_level=0, topics=[]
    ),
    23: OffsetForLeaderEpochRequest(replica_id=2, topics=[]),
    24: AddPartitionsToTxnRequest(transactions=[]),
    27: commit_marker(),
    65: DescribeTransactionsRequest(transactional_ids=[]),
    66: ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
}


def requests() -> list[tuple[int, int]]:
    return [
        (key, version) for key, versions in PEER_VERSIONS.items() for version in range(versions[0], versions[1] + 1)
    ]


@pytest.mark.proves("requests-of-brokers")
@pytest.mark.parametrize(("key", "version"), requests())
async def test_a_client_of_the_same_ca_gets_nothing_at_the_port_of_brokers(
    brokers: TlsNodes, key: int, version: int
) -> None:
    await brokers.start(1)
    wire = await brokers.to_peer_port(1, "client")
    wire.send(REQUESTS[key], version, client_id="broker-2")
    assert await wire.closed_by_peer()
    assert brokers.failure(1)["reason"] == "not_a_broker"
    assert not brokers.logs[1].of("connection_closed"), "no request was read"


async def test_a_client_without_a_certificate_gets_nothing_at_the_port_of_brokers(brokers: TlsNodes) -> None:
    await brokers.start(1)
    wire = await brokers.to_peer_port(1, None)
    wire.send(REQUESTS[66], 1)
    with pytest.raises(ssl.SSLError):
        await wire.closed_by_peer()
    brokers.wires.remove(wire)
    assert brokers.failure(1)["reason"] == "no_client_certificate"


async def test_plaintext_gets_nothing_at_the_port_of_brokers(brokers: TlsNodes) -> None:
    await brokers.start(1)
    wire = await Wire.connect(brokers.peer_port(1))
    wire.send(REQUESTS[66], 1)
    assert await wire.closed_by_peer()
    assert brokers.failure(1)["reason"] == "not_tls"
    await wire.close()


AT_CLIENTS_LISTENER = {
    1: "refused",  # the broker's id in the request shows a follower
    23: "for clients",  # no more than Describe on topics; it does not touch the sessions of followers
    24: "closed",
    27: "only the coordinator commits",
    65: "for clients",
    66: "for clients",
}
"""The result of each request between brokers that arrives at a listener for clients."""


@pytest.mark.proves("requests-of-brokers")
def test_every_request_between_brokers_is_looked_at() -> None:
    assert set(AT_CLIENTS_LISTENER) == set(PEER_VERSIONS)


@pytest.mark.proves("requests-of-brokers")
@pytest.mark.parametrize("certificate", ["broker-2", "client"])
@pytest.mark.parametrize(("key", "version"), requests())
async def test_no_request_between_brokers_is_served_at_a_listener_for_clients(
    brokers: TlsNodes, key: int, version: int, certificate: str
) -> None:
    """Not even for a broker: the listener decides first, then the principal."""
    await brokers.start(
        1,
        listener_security_protocol_map="CLIENT:SSL,INTERNAL:SSL",
        **{"listener.name.client.ssl.client.auth": "required"},
    )
    context = ssl.create_default_context(cafile=str(brokers.authority.ca_file))
    context.load_cert_chain(brokers.authority.directory / f"{certificate}.pem")
    wire = Wire(*await asyncio.open_connection("127.0.0.1", brokers.nodes[1].port, ssl=context))
    brokers.wires.append(wire)
    await wire.create_topic("t")
    wire.send(REQUESTS[key], version, client_id="broker-2")
    match AT_CLIENTS_LISTENER[key]:
        case "closed":
            assert await wire.closed_by_peer()
            (line,) = brokers.logs[1].of("connection_closed")
            assert line["reason"] == "version_not_served"
        case "refused":
            assert (await wire.receive()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        case "for clients":
            await wire.receive()
        case words:
            answer = await wire.receive()
            assert words in answer.markers[0].topics[0].partitions[0].error_message


@pytest.mark.proves("requests-of-brokers")
@pytest.mark.parametrize("version", [14, 17])
async def test_a_client_is_no_follower(brokers: TlsNodes, version: int) -> None:
    """CVE-2018-1288: the replica id stands in another field from version 15 on; both are tested."""
    await brokers.start(1)
    wire = await brokers.client(1)
    follower: dict[str, Any] = (
        {"replica_id": 2} if version == 14 else {"replica_state": FetchRequestReplicaState(replica_id=2)}
    )
    request = FetchRequest(**follower, max_wait_ms=0, min_bytes=0, isolation_level=0, topics=[])
    wire.send(request, version)
    assert (await wire.receive()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
