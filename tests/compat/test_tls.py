"""TLS with other people's clients: with and without a certificate of the client, and while certificates change."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from semel_broker.testing.authority import Authority
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger

COUNT = 300
ROTATIONS = 10
WAIT_S = 20


class TlsBrokerProcess:
    """A broker process with a TLS listener, and the files of its clients."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        self.server = self.authority.issue("server", "127.0.0.1", "localhost")
        self.client = self.authority.issue("client")
        self.broker = BrokerProcess(
            folder / "data",
            **{
                "listeners": "SECURE://127.0.0.1:0",
                "listener.security.protocol.map": "SECURE:SSL",
                "ssl.keystore.location": str(self.server),
                "ssl.truststore.location": str(self.authority.ca_file),
                "ssl.client.auth": "required",
            },
        )

    @property
    def confluent(self) -> dict[str, str]:
        """The settings of librdkafka."""
        return {
            "bootstrap.servers": self.broker.address,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "ssl.certificate.location": str(self.client),
            "ssl.key.location": str(self.client),
        }


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBrokerProcess]:
    made = TlsBrokerProcess(tmp_path_factory.mktemp("tls"))
    made.broker.start()
    yield made
    assert made.broker.stop() == 0, "\n".join(made.broker.log[-30:])


def values() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT)]


def with_confluent(tls: TlsBrokerProcess, topic: str) -> list[bytes | None]:
    face = ConfluentStranger(tls.broker.address)
    face.config = tls.confluent
    face.produce(topic, [(0, None, value) for value in values()])
    return [row.value for row in face.consume(topic, COUNT)]


def with_aiokafka(tls: TlsBrokerProcess, topic: str) -> list[bytes | None]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    async def run() -> list[bytes | None]:
        context = create_ssl_context(
            cafile=str(tls.authority.ca_file), certfile=str(tls.client), keyfile=str(tls.client)
        )
        given = {"bootstrap_servers": tls.broker.address, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**given) as producer:
            for value in values():
                await producer.send(topic, value)
        async with AIOKafkaConsumer(topic, **given, auto_offset_reset="earliest") as consumer:
            return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(COUNT)]

    return asyncio.run(run())


def with_kafka_python(tls: TlsBrokerProcess, topic: str) -> list[bytes | None]:
    from kafka import KafkaConsumer, KafkaProducer

    given: dict[str, Any] = {
        "bootstrap_servers": tls.broker.address,
        "security_protocol": "SSL",
        "ssl_cafile": str(tls.authority.ca_file),
        "ssl_certfile": str(tls.client),
        "ssl_keyfile": str(tls.client),
    }
    producer = KafkaProducer(**given)
    for value in values():
        producer.send(topic, value)
    producer.close()
    consumer = KafkaConsumer(topic, **given, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000)
    found = [message.value for _, message in zip(range(COUNT), consumer, strict=False)]
    consumer.close()
    return found


@pytest.mark.parametrize("client", [with_confluent, with_aiokafka, with_kafka_python])
def test_records_go_both_ways_over_tls(
    tls: TlsBrokerProcess, topic: str, client: Callable[[TlsBrokerProcess, str], list[bytes | None]]
) -> None:
    before = len(tls.broker.log)
    assert client(tls, topic) == values()
    assert not [line for line in tls.broker.log[before:] if "tls_handshake_failed" in line]


def test_librdkafka_without_a_certificate_is_refused_with_one_line(tls: TlsBrokerProcess) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    before = len(tls.broker.log)
    config = {name: text for name, text in tls.confluent.items() if name.split(".")[1] not in ("certificate", "key")}
    with pytest.raises(KafkaException):
        AdminClient({**config, "log_level": 0}).list_topics(timeout=2)
    failed = [line for line in tls.broker.log[before:] if "tls_handshake_failed" in line]
    assert failed
    assert all("no_client_certificate" in line for line in failed)
    assert not [line for line in tls.broker.log if "Traceback" in line]


class ProducerThread(threading.Thread):
    """A producer that sends one record after the other until it is stopped, and counts errors."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        super().__init__(daemon=True)
        self.config, self.topic = config, topic
        self.acknowledged: list[bytes] = []
        self.errors: list[object] = []
        self._stop_asked = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self.config, "enable.idempotence": True, "error_cb": self.errors.append})
        number = 0
        while not self._stop_asked.is_set():
            value = b"%d" % number
            number += 1
            producer.produce(self.topic, value, on_delivery=self._delivered)
            producer.poll(0.001)
        producer.flush(WAIT_S)

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(message.value())

    def end(self) -> None:
        self._stop_asked.set()
        self.join(2 * WAIT_S)
        assert not self.is_alive()


def shown_certificate(tls: TlsBrokerProcess) -> bytes | None:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=str(tls.authority.ca_file))
    context.load_cert_chain(tls.client)

    async def connect() -> bytes | None:
        _, writer = await asyncio.open_connection("127.0.0.1", tls.broker.port, ssl=context)
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return found

    return asyncio.run(connect())


@pytest.mark.thorough
@pytest.mark.real_time
def test_certificates_change_ten_times_under_load_without_an_error(tls: TlsBrokerProcess, topic: str) -> None:
    loads = [ProducerThread(tls.confluent, topic) for _ in range(2)]
    for load in loads:
        load.start()
    shown = {shown_certificate(tls)}
    for _ in range(ROTATIONS):
        tls.authority.issue("server", "127.0.0.1", "localhost")
        deadline = time.monotonic() + WAIT_S
        while (certificate := shown_certificate(tls)) in shown:
            assert time.monotonic() < deadline, "the new certificate is not shown"
            time.sleep(0.1)  # the broker looks at its files each second
        shown.add(certificate)
        late = ProducerThread(tls.confluent, topic)  # a client that connects now
        late.start()
        loads.append(late)
    for load in loads:
        load.end()
    assert [error for load in loads for error in load.errors] == []
    acknowledged = sorted(value for load in loads for value in load.acknowledged)
    face = ConfluentStranger(tls.broker.address)
    face.config = tls.confluent
    stored = sorted(row.value or b"" for row in face.consume(topic, len(acknowledged)))
    assert stored == acknowledged
    assert len(shown) == ROTATIONS + 1
