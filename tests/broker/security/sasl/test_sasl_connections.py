"""Connections to a listener with SASL: logins, refused requests before and after, and re-authentication."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, produce_request
from broker.sasl_login import PASSWORD, ScramLogin, authenticate, handshake, log_in, make_user
from semel_broker.net.connection import Connection
from semel_broker.security.user_store import delete
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from semel_protocol.scram import ScramMechanism

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
EVERYTHING = MetadataRequest(topics=None)


def failures(broker: Harness) -> list[Any]:
    return [line["reason"] for line in broker.log.of("sasl_authentication_failed")]


async def is_served(wire: Wire) -> bool:
    return bool((await wire.call(EVERYTHING)).brokers)


# --- logins


async def test_a_client_is_served_while_a_hundred_others_log_in(sasl_broker: Harness) -> None:
    served = await sasl_broker.wire()
    await log_in(served)
    crowd = [await sasl_broker.wire() for _ in range(100)]
    for wire in crowd:
        wire.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    served.send(EVERYTHING)
    answers = [asyncio.create_task(wire.receive()) for wire in crowd]
    assert (await served.receive()).brokers
    assert sum(answer.done() for answer in answers) < 10, "one of the others has its turn in each turn of the loop"
    assert {answer.error_code for answer in await asyncio.gather(*answers)} == {ErrorCode.NONE}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_logs_in(sasl_broker: Harness, mechanism: str, version: int) -> None:
    wire = await sasl_broker.wire()
    answer = await log_in(wire, mechanism=mechanism, version=version)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
    assert await is_served(wire)
    assert failures(sasl_broker) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_logs_in_with_tokens_without_headers(sasl_broker: Harness, mechanism: str) -> None:
    """SaslHandshake v0, as clients before KIP-152 send it."""
    wire = await sasl_broker.wire()
    assert (await handshake(wire, mechanism, version=0)).error_code == ErrorCode.NONE
    login = ScramLogin(mechanism="SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism)
    if mechanism == "PLAIN":
        assert await raw(wire, f"\0alice\0{PASSWORD}".encode()) == b""
    else:
        last = await raw(wire, login.final(await raw(wire, login.first())))
        assert last.startswith(b"v=")
    assert await is_served(wire)


async def raw(wire: Wire, token: bytes) -> bytes:
    wire.send_bytes(len(token).to_bytes(4, "big") + token)
    return await wire.receive_frame()


async def test_the_principal_is_the_user_from_then_on(start_sasl: Any) -> None:
    broker = await start_sasl(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:alice"
    )
    await make_user(broker, "bob, of =house")
    alice, bob = await broker.wire(), await broker.wire()
    assert (await log_in(alice)).error_code == ErrorCode.NONE
    assert (await log_in(bob, "bob, of =house")).error_code == ErrorCode.NONE
    await alice.create_topic("t")
    assert (await alice.produce("t", batch(b"v"))).error_code == ErrorCode.NONE
    assert (await bob.produce("t", batch(b"v"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (denied,) = broker.log.of("not_authorized")
    assert denied["principal"] == "User:bob, of =house"


async def test_api_versions_is_answered_before_authentication(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    keys = {row.api_key for row in (await wire.call(ApiVersionsRequest(), 3)).api_keys}
    assert {17, 36} <= keys
    assert (await log_in(wire)).error_code == ErrorCode.NONE


# --- refusals


async def test_an_old_password_is_refused_once_it_is_changed(sasl_broker: Harness) -> None:
    """PLAIN caches verified passwords; a change of the credential clears the cache."""
    for _ in range(2):
        assert (await log_in(await sasl_broker.wire(), mechanism="PLAIN")).error_code == ErrorCode.NONE
    await make_user(sasl_broker, "alice", "another")
    assert (
        await log_in(await sasl_broker.wire(), mechanism="PLAIN")
    ).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (await log_in(await sasl_broker.wire(), "alice", "another", "PLAIN")).error_code == ErrorCode.NONE
    assert failures(sasl_broker) == ["wrong_password"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_and_an_unknown_user_get_the_same_answers(sasl_broker: Harness, mechanism: str) -> None:
    answers = []
    for name, password in (("alice", "wrong"), ("mallory", PASSWORD)):
        wire = await sasl_broker.wire()
        began = asyncio.get_running_loop().time()
        answer = await log_in(wire, name, password, mechanism)
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        answers.append((answer.error_code, answer.error_message, answer.auth_bytes, round(took_ms)))
        assert await wire.closed_by_peer()
    known, unknown = answers
    assert known == unknown
    assert known[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (
        known[1]
        == f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert known[3] >= 100, "connection.failed.authentication.delay.ms"
    assert failures(sasl_broker) == ["wrong_password", "unknown_user"]
    text = str(sasl_broker.log.lines)
    assert PASSWORD not in text
    assert "mallory" not in text


@pytest.mark.parametrize("refused", ["login", "before login", "malformed", "unknown mechanism"])
async def test_nothing_is_kept_of_a_connection_that_was_refused(sasl_broker: Harness, refused: str) -> None:
    """Otherwise a client that reconnects again and again uses up the memory. gc does not see into all objects."""
    before = connections()
    for _ in range(3):
        wire = await sasl_broker.wire()
        match refused:
            case "login":
                await log_in(wire, "alice", "wrong")
            case "before login":
                wire.send(MetadataRequest(topics=None), 4)
            case "malformed":
                wire.send_bytes((20).to_bytes(4, "big") + b"\xff" * 20)
            case "unknown mechanism":
                await handshake(wire, "SCRAM-SHA-1")
        await wire.closed_by_peer()
        await wire.close()
    await asyncio.sleep(10)
    for _ in range(3):  # a connection may be freed only after an exception that knows it
        gc.collect()
    assert connections() <= before


def connections() -> set[int]:
    """The identities of all connections in memory, those of earlier tests too."""
    return {id(each) for each in gc.get_objects() if isinstance(each, Connection)}


async def test_an_unknown_user_has_the_same_salt_each_time_and_on_each_broker(start_sasl: Any) -> None:
    async def first(broker: Harness, name: str) -> list[str]:
        wire = await broker.wire()
        await handshake(wire)
        answer = await authenticate(wire, ScramLogin(name).first())
        return answer.auth_bytes.decode().split(",")[1:]

    broker = await start_sasl()
    salts = [await first(broker, "mallory"), await first(broker, "mallory"), await first(broker, "trudy")]
    await broker.restart()
    salts.append(await first(broker, "mallory"))
    assert salts[0] == salts[1] == salts[3] != salts[2]
    assert salts[0][1] == "i=4096"


async def test_an_unknown_mechanism_is_refused_with_the_list(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    answer = await handshake(wire, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
    assert await wire.closed_by_peer()
    assert failures(sasl_broker) == ["unsupported_mechanism"]


@pytest.mark.proves("re-authentication")
async def test_a_request_before_authentication_closes_the_connection(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    wire.send(EVERYTHING)
    assert await wire.closed_by_peer()
    (line,) = sasl_broker.log.of("sasl_authentication_failed")
    assert (line["reason"], line["api_key"]) == ("request_before_authentication", 3)
    assert "SASL_PLAINTEXT" in str(line["do"])


@pytest.mark.proves("scram")
async def test_scram_that_is_not_finished_is_not_authenticated(sasl_broker: Harness) -> None:
    """The server has sent its first message, and the client sends a request in place of its proof."""
    wire = await sasl_broker.wire()
    await handshake(wire)
    assert (await authenticate(wire, ScramLogin().first())).error_code == ErrorCode.NONE
    wire.send(EVERYTHING)
    assert await wire.closed_by_peer()
    assert failures(sasl_broker) == ["request_before_authentication"]


@pytest.mark.proves("re-authentication")
@pytest.mark.parametrize("name", ["SaslHandshake", "SaslAuthenticate"])
async def test_sasl_out_of_turn_is_answered_with_illegal_sasl_state(sasl_broker: Harness, name: str) -> None:
    wire = await sasl_broker.wire()
    if name == "SaslHandshake":
        await handshake(wire)
        answer = await handshake(wire)
    else:
        answer = await authenticate(wire, b"\0alice\0" + PASSWORD.encode())
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await wire.closed_by_peer()
    assert failures(sasl_broker) == ["illegal_sasl_state"]


@pytest.mark.proves("re-authentication")
async def test_requests_pipelined_behind_a_failed_login_are_not_served(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    wire.send(SaslHandshakeRequest(mechanism="PLAIN"))
    wire.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
    wire.send(produce_request("t", batch(b"v")))
    assert (await wire.receive()).error_code == ErrorCode.NONE
    assert (await wire.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await wire.closed_by_peer()
    assert sasl_broker.node is not None
    assert sasl_broker.node.broker.topics.names() == []


async def test_requests_pipelined_behind_a_login_are_served_under_its_principal(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    wire.send(SaslHandshakeRequest(mechanism="PLAIN"))
    wire.send(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()))
    wire.send(EVERYTHING)
    for _ in range(2):
        assert (await wire.receive()).error_code == ErrorCode.NONE
    assert (await wire.receive()).brokers


async def test_a_listener_without_sasl_refuses_sasl_and_serves_other_requests(broker: Harness) -> None:
    wire = await broker.wire()
    assert (await handshake(wire)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await authenticate(wire, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_served(wire)
    assert failures(broker) == ["listener_without_sasl"] * 2


# --- bounds


@pytest.mark.proves("unauthenticated-clients")
async def test_authentication_takes_at_most_its_time(sasl_broker: Harness) -> None:
    silent, half = await sasl_broker.wire(), await sasl_broker.wire()
    await handshake(half)
    await asyncio.sleep(40)
    assert await silent.closed_by_peer()
    assert await half.closed_by_peer()
    assert failures(sasl_broker) == ["authentication_timeout"] * 2


@pytest.mark.proves("unauthenticated-clients")
@pytest.mark.parametrize(
    ("size", "is_begun"), [(16 * 1024 + 1, False), (131_072 + 1, True), (-1, False)], ids=["request", "token", "sign"]
)
async def test_a_frame_before_authentication_is_bounded(sasl_broker: Harness, size: int, is_begun: bool) -> None:
    wire = await sasl_broker.wire()
    if is_begun:
        await handshake(wire)
    wire.send_bytes(size.to_bytes(4, "big", signed=True))
    assert await wire.closed_by_peer()
    assert sasl_broker.log.of("connection_closed")[0]["reason"] == "malformed_frame"


async def test_large_frames_are_allowed_after_authentication(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire)
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(bytes(300_000)))).error_code == ErrorCode.NONE


@pytest.mark.proves("unauthenticated-clients")
async def test_connections_that_do_not_authenticate_leave_room_for_others(sasl_broker: Harness) -> None:
    assert sasl_broker.node is not None
    logins = sasl_broker.node.server.context.logins
    logins._per_address_max = 8
    silent = [await sasl_broker.wire() for _ in range(8)]
    await asyncio.sleep(0.1)
    refused = await sasl_broker.wire()  # none is stalled yet
    assert await refused.closed_by_peer()
    await asyncio.sleep(2)
    wire = await sasl_broker.wire()
    assert (await log_in(wire)).error_code == ErrorCode.NONE
    assert await silent[0].closed_by_peer()
    assert len(logins) == 7
    assert failures(sasl_broker) == ["too_many_unauthenticated", "authentication_stalled"]
    for each in silent:
        await each.close()
    await asyncio.sleep(0.1)
    assert len(logins) == 0
    assert await is_served(wire)


async def test_a_client_that_leaves_in_the_middle_is_logged(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await handshake(wire)
    await wire.close()
    probe = await sasl_broker.wire()
    await probe.close()
    await asyncio.sleep(0.1)
    assert failures(sasl_broker) == ["closed_in_authentication"]


# --- users that change


async def test_open_connections_stay_when_their_user_is_deleted(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire)
    assert sasl_broker.node is not None
    await sasl_broker.node.broker.users.alter([delete("alice", each) for each in ScramMechanism])
    assert await is_served(wire)
    assert (await log_in(await sasl_broker.wire())).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_user_has_the_mechanisms_of_its_credentials(sasl_broker: Harness) -> None:
    await make_user(sasl_broker, "carol", PASSWORD, ScramMechanism.SCRAM_SHA_512)
    for mechanism, code in (
        ("SCRAM-SHA-256", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("SCRAM-SHA-512", ErrorCode.NONE),
        ("PLAIN", ErrorCode.NONE),
    ):
        assert (await log_in(await sasl_broker.wire(), "carol", mechanism=mechanism)).error_code == code


# --- re-authentication (KIP-368)


async def test_a_session_ends_unless_the_client_authenticates_again(start_sasl: Any) -> None:
    broker = await start_sasl(connections_max_reauth_ms="60000")
    renewing, forgetful = await broker.wire(), await broker.wire()
    for wire in (renewing, forgetful):
        assert (await log_in(wire)).session_lifetime_ms == 60_000
    for _ in range(3):
        await asyncio.sleep(50)
        assert (await log_in(renewing)).session_lifetime_ms == 60_000
        assert await is_served(renewing)
    forgetful.send(EVERYTHING)
    assert await forgetful.closed_by_peer()
    assert "session_expired" in [line["reason"] for line in broker.log.of("connection_closed")]


FAR_MS = 120_000


@pytest.mark.parametrize("partitions", [1, 300])
async def test_a_waiting_fetch_ends_with_its_session_and_gets_no_records_after_it(
    start_sasl: Any, partitions: int
) -> None:
    broker = await start_sasl(connections_max_reauth_ms="60000")
    other, wire = await broker.wire(), await broker.wire()
    assert (await log_in(other)).error_code == 0
    await other.create_topic("t", partitions=partitions)
    await asyncio.sleep(30)
    await log_in(other)
    await log_in(wire)
    began = asyncio.get_running_loop().time()
    rows = [
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topic = FetchRequestTopic(topic="t", partitions=rows)
    fetch = FetchRequest(replica_id=-1, max_wait_ms=FAR_MS, min_bytes=1 << 20, isolation_level=0, topics=[topic])
    wire.send(fetch, 11)
    wire.send(fetch, 11)
    await asyncio.sleep(9)
    await log_in(other)
    for _ in range(4):
        await other.call(produce_request("t", batch(b"secret")))
    await asyncio.sleep(began + 58 - asyncio.get_running_loop().time())
    answer = await wire.receive()
    assert asyncio.get_running_loop().time() - began == pytest.approx(60, abs=0.5)
    (answered,) = answer.responses
    assert [row.error_code for row in answered.partitions] == [0] * partitions
    assert answered.partitions[0].high_watermark == 4
    assert not any(row.records for row in answered.partitions)
    assert await wire.closed_by_peer(), "the request behind it is not served"


async def test_a_fetch_that_is_full_before_its_session_ends_has_its_records(start_sasl: Any) -> None:
    broker = await start_sasl(connections_max_reauth_ms="60000")
    wire = await broker.wire()
    await log_in(wire)
    await wire.create_topic("t")
    await wire.call(produce_request("t", batch(b"x")))
    assert (await wire.fetch("t", 0, max_wait_ms=FAR_MS, min_bytes=1)).records


async def test_an_expired_session_may_still_be_renewed(start_sasl: Any) -> None:
    broker = await start_sasl(connections_max_reauth_ms="10000")
    wire = await broker.wire()
    await log_in(wire)
    await asyncio.sleep(20)
    assert (await log_in(wire)).session_lifetime_ms == 10_000
    assert await is_served(wire)


@pytest.mark.proves("re-authentication")
async def test_reauthentication_as_another_user_closes_the_connection(sasl_broker: Harness) -> None:
    await make_user(sasl_broker, "bob")
    wire = await sasl_broker.wire()
    await log_in(wire)
    answer = await log_in(wire, "bob")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await wire.closed_by_peer()
    assert failures(sasl_broker) == ["other_principal"]


async def test_reauthentication_with_another_mechanism_closes_the_connection(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire)
    answer = await handshake(wire, "SCRAM-SHA-512")
    assert (answer.error_code, answer.mechanisms) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"],
    )
    assert await wire.closed_by_peer()


async def test_reauthentication_more_than_once_a_second_is_refused_and_the_connection_stays(
    sasl_broker: Harness,
) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire)
    assert (await log_in(wire)).error_code == ErrorCode.NONE
    assert (await handshake(wire)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await authenticate(wire, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_served(wire)
    await asyncio.sleep(1)
    assert (await log_in(wire)).error_code == ErrorCode.NONE


async def test_a_request_in_the_middle_of_reauthentication_closes_the_connection(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire)
    await handshake(wire)
    wire.send(EVERYTHING)
    assert await wire.closed_by_peer()


@pytest.mark.proves("re-authentication")
async def test_requests_around_a_reauthentication_are_answered_in_order(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire, mechanism="PLAIN")
    await wire.create_topic("t")
    for request in (
        produce_request("t", batch(b"before")),
        EVERYTHING,
        produce_request("t", batch(b"just before")),
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()),
        produce_request("t", batch(b"after")),
    ):
        wire.send(request)
    answers = [await wire.receive() for _ in range(6)]  # asserts the correlation ids
    assert [answers[n].error_code for n in (3, 4)] == [ErrorCode.NONE] * 2
    assert await wire.values("t") == [b"before", b"just before", b"after"]


@pytest.mark.proves("re-authentication")
async def test_requests_behind_a_failed_reauthentication_are_not_served(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire, mechanism="PLAIN")
    await wire.create_topic("t")
    for request in (
        produce_request("t", batch(b"before")),
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"),
        produce_request("t", batch(b"after")),
    ):
        wire.send(request)
    before, begun, failed = [await wire.receive() for _ in range(3)]
    assert before.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert (begun.error_code, failed.error_code) == (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert "re-authentication" in failed.error_message
    assert await wire.closed_by_peer()
    other = await sasl_broker.wire()
    await log_in(other)
    assert await other.values("t") == [b"before"]


# --- secrets, and the first user


@pytest.mark.proves("secrets-shown")
async def test_no_secret_is_in_a_log_or_a_repr(sasl_broker: Harness) -> None:
    wire = await sasl_broker.wire()
    await log_in(wire, mechanism="PLAIN")
    assert sasl_broker.node is not None
    users = sasl_broker.node.broker.users
    credential = users.credentials("alice")[ScramMechanism.SCRAM_SHA_256]
    text = f"{sasl_broker.log.lines} {users!r} {credential!r} {sasl_broker.node.broker.config!r}"
    for secret in (PASSWORD, credential.stored_key, credential.server_key, credential.salt):
        assert str(secret) not in text


async def test_the_first_user_is_made_once(start_broker: StartBroker) -> None:
    broker = await start_broker(listeners="SASL_PLAINTEXT://127.0.0.1:0", durability="os")
    assert broker.node is not None
    users, world = broker.node.broker.users, broker.node.broker.world
    await users.make_first("admin", PASSWORD, world)
    assert (await log_in(await broker.wire(), "admin", mechanism="SCRAM-SHA-512")).error_code == ErrorCode.NONE
    await users.make_first("other", PASSWORD, world)
    assert users.names == ["admin"]


# --- the audit log


@pytest.mark.proves("secrets-shown")
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_refused_login_is_in_the_audit_log_with_the_name_and_without_the_password(
    start_sasl: Any, mechanism: str
) -> None:
    broker = await start_sasl(audit_log_file="-")
    wire = await broker.wire()
    answer = await log_in(wire, "alice", "a teapot", mechanism)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    (line,) = [each for each in map(json.loads, broker.audit) if each["operation"] == "AUTHENTICATE"]
    assert (line["decision"], line["rule"], line["mechanism"]) == ("denied", "wrong_password", mechanism)
    assert (line["principal"], line["host"]) == ("User:alice", "127.0.0.1")
    assert "teapot" not in str(broker.audit)
