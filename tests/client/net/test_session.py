"""KIP-368: a client authenticates again before its session ends, between its requests, and no request fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client.fake_broker import QUICK
from client.fake_sasl import PASSWORD, USER, PromptEdge, SaslBroker
from semel import Producer
from semel._config.client import AdminConfig
from semel._net.connection import Connection, connect
from semel._net.sasl import Credentials
from semel.errors import KafkaConnectionError, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest
from semel_protocol.messages.k03_metadata import MetadataRequest

LIFETIME_S = 10
LOGIN = ["handshake", "authenticate"]


def settings(broker: SaslBroker, mechanism: str = "PLAIN") -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "edge": PromptEdge(),
        **QUICK,
    }


async def opened(broker: SaslBroker, mechanism: str = "PLAIN") -> Connection:
    """A connection whose session lasts LIFETIME_S."""
    broker.lifetime_ms = LIFETIME_S * 1000
    config, edge = AdminConfig(**settings(broker, mechanism)), PromptEdge()
    credentials = Credentials(config, edge)
    made = await connect(edge, "127.0.0.1", broker.port, client_id="c", timeout_ms=5_000, credentials=credentials)
    broker.steps.clear()
    return made


def ask(connection: Connection, timeout_ms: float = 60_000) -> asyncio.Future[Any]:
    return connection.send(MetadataRequest(topics=[]), timeout_ms=timeout_ms)


class Gate:
    """Holds the broker's answers to Metadata until it is opened."""

    def __init__(self, broker: SaslBroker) -> None:
        self._open = asyncio.Event()
        self._answer, broker.answers[3] = broker.answers[3], self._wait

    async def _wait(self, request: Any) -> Any:
        await self._open.wait()
        return await self._answer(request)

    def open(self) -> None:
        self._open.set()


async def test_the_session_is_renewed_by_the_first_request_after_85_to_95_percent_of_it() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)
        await asyncio.sleep(LIFETIME_S * 0.84)
        await ask(connection)
        assert broker.steps == ["Metadata"]
        await asyncio.sleep(LIFETIME_S * 0.12)
        await ask(connection)
        assert broker.steps == ["Metadata", *LOGIN, "Metadata"]
        await ask(connection)
        assert broker.steps == ["Metadata", *LOGIN, "Metadata", "Metadata"]
        connection.close()


async def test_clients_do_not_renew_their_sessions_all_at_once() -> None:
    async with SaslBroker("PLAIN") as broker:
        due = [(await opened(broker))._session._due for _ in range(20)]  # type: ignore[union-attr]
    assert len(set(due)) == 20


async def test_a_broker_without_a_lifetime_is_not_asked_again() -> None:
    async with (
        SaslBroker("PLAIN") as broker,
        Producer(**settings(broker), connections_max_idle_ms=None) as producer,
    ):
        for _ in range(5):
            await producer.send_and_wait("t", b"x")
            await asyncio.sleep(3600)
        assert broker.logins == 2, "for metadata, and for data"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_requests_wait_until_earlier_ones_are_answered_and_the_session_is_renewed(mechanism: str) -> None:
    async with SaslBroker(mechanism) as broker:
        connection = await opened(broker, mechanism)
        gate = Gate(broker)
        first = ask(connection)
        await asyncio.sleep(LIFETIME_S)
        others = [ask(connection) for _ in range(3)]
        await asyncio.sleep(1)
        assert connection.in_flight == 4
        assert broker.steps == ["Metadata"], "the earlier request is not answered yet"
        gate.open()
        await asyncio.gather(first, *others)
        steps = [*LOGIN, "authenticate"] if mechanism != "PLAIN" else LOGIN
        assert broker.steps == ["Metadata", *steps, "Metadata", "Metadata", "Metadata"]
        assert connection.in_flight == 0
        connection.close()


async def test_a_request_without_an_answer_waits_too() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)
        await asyncio.sleep(LIFETIME_S)
        before, after = ask(connection), None
        connection.send_unanswered(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
        after = ask(connection)
        await asyncio.gather(before, after)
        assert broker.steps == [*LOGIN, "Metadata", "Produce", "Metadata"]
        connection.close()


async def test_a_cancelled_request_is_not_sent_after_the_renewal() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)
        await asyncio.sleep(LIFETIME_S)
        first, second = ask(connection), ask(connection)
        first.cancel()
        await second
        assert broker.steps == [*LOGIN, "Metadata"]
        connection.close()


async def test_a_refused_renewal_closes_the_connection_and_fails_its_requests() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)
        lost = []
        connection.on_lost = lambda: lost.append(True)
        broker.password = "another"
        await asyncio.sleep(LIFETIME_S)
        requests = [ask(connection), ask(connection)]
        for request in requests:
            with pytest.raises(KafkaConnectionError, match=r"cannot renew the session .* refused the client") as caught:
                await request
            assert PASSWORD not in str(caught.value)
        assert connection.closed
        assert lost == [True]
        assert broker.steps == LOGIN


async def test_held_requests_time_out_like_others() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)
        Gate(broker)
        first = ask(connection, timeout_ms=1_000_000)
        await asyncio.sleep(LIFETIME_S)
        held, begun = ask(connection, timeout_ms=2_000), asyncio.get_running_loop().time()
        with pytest.raises(KafkaError, match="did not answer Metadata within 2000 ms"):
            await held
        assert asyncio.get_running_loop().time() - begun == pytest.approx(2, abs=0.1)
        with pytest.raises(KafkaConnectionError):
            await first


async def test_a_broker_that_does_not_answer_the_renewal_is_given_up() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)

        async def silence(_: Any) -> Any:
            await asyncio.Event().wait()

        broker.answers[36] = silence
        await asyncio.sleep(LIFETIME_S)
        with pytest.raises(KafkaError):
            await ask(connection)
        assert connection.closed


async def test_closing_during_the_renewal_fails_the_held_requests() -> None:
    async with SaslBroker("PLAIN") as broker:
        connection = await opened(broker)
        Gate(broker)
        first = ask(connection)
        await asyncio.sleep(LIFETIME_S)
        held = ask(connection)
        connection.close()
        for request in (first, held):
            with pytest.raises(KafkaConnectionError):
                await request
        await asyncio.sleep(60)
        assert broker.steps == ["Metadata"]


async def test_no_record_is_lost_or_doubled_by_renewals() -> None:
    async with SaslBroker("SCRAM-SHA-512") as broker:
        broker.lifetime_ms = 500
        async with Producer(**settings(broker, "SCRAM-SHA-512")) as producer:
            sent = []
            for number in range(500):
                sent.append(await producer.send("t", b"%d" % number))
                await asyncio.sleep(0.01)
            await asyncio.gather(*sent)
        assert broker.log().values == [b"%d" % number for number in range(500)]
        assert broker.logins > 8


async def test_an_idle_connection_is_not_renewed_and_is_closed_as_others() -> None:
    async with SaslBroker("PLAIN") as broker:
        broker.lifetime_ms = 1_000
        given = settings(broker) | {"connections_max_idle_ms": 60_000, "metadata_max_age_ms": 3_000_000}
        async with Producer(**given):
            await asyncio.sleep(600)
            assert broker.logins == 1
            assert not broker.connections
