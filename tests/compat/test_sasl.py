"""SASL with other people's clients: each mechanism over plaintext and TLS, and a clear error for a wrong password."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from semel_broker.scheduling.folded_log import KIND_LINES_MAX
from semel_broker.security.offline_users import create_user
from semel_broker.testing.authority import Authority
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger

COUNT = 100
WAIT_S = 20
ERROR_S = 10
USER, PASSWORD = "alice", "a kettle, and a =teapot ü"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
COMBINATIONS = [
    ("SASL_SSL", "PLAIN"),
    *((protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in SCRAM),
]


class Sasl:
    """A broker process with two listeners with SASL and one user, and what its clients need."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        server = self.authority.issue("server", "127.0.0.1", "localhost")
        asyncio.run(create_user(str(folder / "data"), USER, PASSWORD))
        self.broker = BrokerProcess(
            folder / "data",
            **{
                "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "ssl.keystore.location": str(server),
                "connections.max.reauth.ms": "3000",
            },
        )

    def address(self, protocol: str) -> str:
        return f"localhost:{self.broker.ports[protocol]}"

    def confluent(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """The settings of librdkafka."""
        return {
            "bootstrap.servers": self.address(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": str(self.authority.ca_file),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }

    def python(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """The settings of kafka-python; aiokafka has the same names but for TLS."""
        return {
            "bootstrap_servers": self.address(protocol),
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sasl]:
    made = Sasl(tmp_path_factory.mktemp("sasl"))
    made.broker.start()
    yield made
    assert made.broker.stop() == 0, "\n".join(made.broker.log[-30:])
    assert not [line for line in made.broker.log if "Traceback" in line or PASSWORD in line]


def values() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT)]


def with_confluent(sasl: Sasl, how: tuple[str, str], topic: str) -> list[bytes | None]:
    face = ConfluentStranger(sasl.address(how[0]))
    face.config = sasl.confluent(*how)
    face.produce(topic, [(0, None, value) for value in values()])
    return [row.value for row in face.consume(topic, COUNT)]


def with_aiokafka(sasl: Sasl, how: tuple[str, str], topic: str) -> list[bytes | None]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    async def run() -> list[bytes | None]:
        given = sasl.python(*how) | {"ssl_context": create_ssl_context(cafile=str(sasl.authority.ca_file))}
        async with AIOKafkaProducer(**given) as producer:
            for value in values():
                await producer.send(topic, value)
        async with AIOKafkaConsumer(topic, **given, auto_offset_reset="earliest") as consumer:
            return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(COUNT)]

    return asyncio.run(run())


def with_kafka_python(sasl: Sasl, how: tuple[str, str], topic: str) -> list[bytes | None]:
    from kafka import KafkaConsumer, KafkaProducer

    given = sasl.python(*how) | {"ssl_cafile": str(sasl.authority.ca_file)}
    producer = KafkaProducer(**given)
    for value in values():
        producer.send(topic, value)
    producer.close()
    consumer = KafkaConsumer(topic, **given, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000)
    found = [message.value for _, message in zip(range(COUNT), consumer, strict=False)]
    consumer.close()
    return found


@pytest.mark.parametrize("how", COMBINATIONS, ids="-".join)
@pytest.mark.parametrize("client", [with_confluent, with_aiokafka, with_kafka_python])
def test_records_go_both_ways(
    sasl: Sasl, topic: str, client: Callable[[Sasl, tuple[str, str], str], list[bytes | None]], how: tuple[str, str]
) -> None:
    before = len(sasl.broker.log)
    assert client(sasl, how, topic) == values()
    assert not [line for line in sasl.broker.log[before:] if "failed" in line]


def confluent_error(sasl: Sasl, how: tuple[str, str]) -> str:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    said: list[str] = []
    config = sasl.confluent(*how, "wrong") | {"log_level": 0}
    admin = AdminClient({**config, "error_cb": lambda error: said.append(str(error))})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(1)
    return " ".join(said)


def aiokafka_error(sasl: Sasl, how: tuple[str, str]) -> str:
    """aiokafka has the reason in its log alone."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    async def run() -> None:
        context = create_ssl_context(cafile=str(sasl.authority.ca_file))
        producer = AIOKafkaProducer(**sasl.python(*how, "wrong"), ssl_context=context)
        with pytest.raises(KafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(run())
    return ""


def kafka_python_error(sasl: Sasl, how: tuple[str, str]) -> str:
    """kafka-python tries again until its time is up; it has the reason in its log."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    given = sasl.python(*how, "wrong") | {"ssl_cafile": str(sasl.authority.ca_file), "bootstrap_timeout_ms": 2000}
    with pytest.raises(KafkaError):
        KafkaAdminClient(**given)
    return ""


@pytest.mark.parametrize("how", [COMBINATIONS[0], COMBINATIONS[1]], ids="-".join)
@pytest.mark.parametrize("error_of", [confluent_error, aiokafka_error, kafka_python_error])
def test_a_wrong_password_is_a_clear_error_within_seconds(
    sasl: Sasl,
    error_of: Callable[[Sasl, tuple[str, str]], str],
    how: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, began = len(sasl.broker.log), time.monotonic()
    said = error_of(sasl, how) or caplog.text
    assert "Authentication failed during authentication due to invalid credentials" in said, said
    assert time.monotonic() - began < ERROR_S
    failed = [line for line in sasl.broker.log[before:] if "sasl_authentication_failed" in line]
    reasons = {json.loads(line)["reason"] for line in failed}
    everyone = sum("sasl_authentication_failed" in line for line in sasl.broker.log)
    assert "wrong_password" in reasons or everyone >= KIND_LINES_MAX, "later lines of a kind are folded"
    assert reasons <= {"wrong_password", "closed_in_authentication"}  # a client may give a connection up


def test_confluent_kafka_makes_describes_and_deletes_users(sasl: Sasl) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient(sasl.confluent("SASL_SSL", "PLAIN"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"secret", b"salt")])
    assert made["bob"].result(WAIT_S) is None
    found = admin.describe_user_scram_credentials(["bob"])["bob"].result(WAIT_S)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [(info.mechanism, 8192)]
    config = sasl.confluent("SASL_PLAINTEXT", "SCRAM-SHA-512", "secret") | {"sasl.username": "bob"}
    assert AdminClient(config).list_topics(timeout=WAIT_S).brokers
    gone = admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", info.mechanism)])
    assert gone["bob"].result(WAIT_S) is None
    with pytest.raises(KafkaException, match="there is no user bob"):
        admin.describe_user_scram_credentials(["bob"])["bob"].result(WAIT_S)


@pytest.mark.thorough
@pytest.mark.real_time
def test_librdkafka_authenticates_again_while_it_produces(sasl: Sasl, topic: str) -> None:
    """KIP-368: sessions last 3 s here. It takes three of them."""
    from confluent_kafka import Producer

    before = len(sasl.broker.log)
    errors: list[object] = []
    producer = Producer(sasl.confluent("SASL_PLAINTEXT", "SCRAM-SHA-512") | {"error_cb": errors.append})
    acknowledged: list[object] = []
    until, number = time.monotonic() + 10, 0
    while time.monotonic() < until:
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, message: acknowledged.append(error))
        producer.poll(0.01)
        number += 1
    producer.flush(WAIT_S)
    assert acknowledged == [None] * number
    assert errors == []
    assert not [line for line in sasl.broker.log[before:] if "session_expired" in line or "failed" in line]
