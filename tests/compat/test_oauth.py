"""OAUTHBEARER with other people's clients: tokens of an issuer over TLS, and a clear error for a wrong one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.helpers import create_ssl_context
from broker.security.sasl import issuer
from broker.security.sasl.issuer import AUDIENCE, ISSUER, jwks, public, token
from confluent_kafka import Consumer, Producer
from semel_broker.testing.authority import Authority
from support.processes import BrokerProcess

COUNT = 100
WAIT_S = 20
LIFE_S = 5


def fresh(**claims: Any) -> tuple[str, float]:
    """A token and the end of its life, in seconds since 1970."""
    now = time.time()
    return token(**{"exp": now + LIFE_S, "nbf": now - 1, "iat": now - 1, **claims}), now + LIFE_S


class OAuth:
    """A broker process with OAUTHBEARER over TLS."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        (folder / "jwks.json").write_bytes(jwks(public(issuer.rsa_key())))
        self.broker = BrokerProcess(
            folder / "data",
            **{
                "listeners": "SASL_SSL://127.0.0.1:0",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.file": str(folder / "jwks.json"),
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.clock.skew.seconds": "1",
                "ssl.keystore.location": str(self.authority.issue("server", "127.0.0.1", "localhost")),
            },
        )

    def confluent(self, **claims: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.broker.ports['SASL_SSL']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca_file),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: fresh(**claims),
        }


@pytest.fixture(scope="module")
def oauth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuth]:
    made = OAuth(tmp_path_factory.mktemp("oauth"))
    made.broker.start()
    yield made
    assert made.broker.stop() == 0, "\n".join(made.broker.log[-30:])


def test_librdkafka_produces_and_consumes(oauth: OAuth) -> None:
    producer = Producer(oauth.confluent())
    for number in range(COUNT):
        producer.produce("rd", b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**oauth.confluent(), "group.id": "rd", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rd"])
    values, until = [], time.monotonic() + WAIT_S
    while len(values) < COUNT and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    assert values == [b"%d" % number for number in range(COUNT)]


def test_librdkafka_gets_an_error_for_a_token_of_another_service(oauth: OAuth) -> None:
    errors: list[Any] = []
    producer = Producer({**oauth.confluent(aud="other"), "error_cb": errors.append})
    until = time.monotonic() + WAIT_S
    while not any("invalid" in str(error) for error in errors) and time.monotonic() < until:
        producer.poll(0.1)
    assert any("Authentication failed during authentication due to invalid credentials" in str(e) for e in errors), (
        errors
    )
    assert any("wrong_audience" in line for line in oauth.broker.log)


class AiokafkaTokens(AbstractTokenProvider):
    async def token(self) -> str:
        return fresh()[0]


async def test_aiokafka_produces_and_consumes(oauth: OAuth) -> None:
    given: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{oauth.broker.ports['SASL_SSL']}",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": AiokafkaTokens(),
        "ssl_context": create_ssl_context(cafile=str(oauth.authority.ca_file)),
    }
    async with aiokafka.AIOKafkaProducer(**given) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("aio", b"%d" % number)
    async with aiokafka.AIOKafkaConsumer("aio", **given, auto_offset_reset="earliest") as consumer:
        values = [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(COUNT)]
    assert values == [b"%d" % number for number in range(COUNT)]
