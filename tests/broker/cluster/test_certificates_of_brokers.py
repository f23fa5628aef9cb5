"""Three broker processes with TLS between them.

Certificates and CAs change under load, and a wrong certificate is refused.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from semel import Consumer, Producer
from semel_broker.testing.authority import Authority
from support.processes import BrokerProcess
from support.three import NODES, EtcdAndThreeBrokers

pytestmark = [pytest.mark.real_time, pytest.mark.thorough]
WAIT_S = 30
TOPIC = "t"


class SecureBrokers(EtcdAndThreeBrokers):
    """Three brokers, each with certificate and truststore in files of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            **{
                "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
                "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SSL",
                "inter.broker.listener.name": "INTERNAL",
                "ssl.principal.mapping.rules": "RULE:^CN=(broker)-[0-9]+,.*$/$1/",
                "broker.principals": "User:broker",
                "replica.lag.time.max.ms": "3000",
                "broker.session.timeout.ms": "3000",
            },
        )
        self.files = directory / "files"
        self.files.mkdir(parents=True)
        self.own_settings = {
            node_id: {
                "ssl.keystore.location": str(self.files / f"broker-{node_id}.pem"),
                "ssl.truststore.location": str(self.files / f"cas-{node_id}.pem"),
            }
            for node_id in NODES
        }

    def give_certificate(self, node_id: int, authority: Authority) -> None:
        authority.issue(f"broker-{node_id}", "127.0.0.1").replace(self.files / f"broker-{node_id}.pem")

    def give_cas(self, node_id: int, *authorities: Authority) -> None:
        fresh = self.files / "fresh.pem"
        fresh.write_text("".join(each.ca_file.read_text() for each in authorities))
        fresh.replace(self.files / f"cas-{node_id}.pem")

    async def wait_until_read(self, node_id: int, times: int) -> None:
        """Wait until both directions have read their files `count` times."""
        async with asyncio.timeout(WAIT_S):
            while len(events(self.brokers[node_id], "certificates_reloaded")) < 2 * times:
                await asyncio.sleep(0.05)

    async def restart(self, node_id: int) -> None:
        await asyncio.to_thread(self.brokers[node_id].stop)
        await asyncio.to_thread(self.brokers[node_id].start)
        await asyncio.to_thread(self.wait, TOPIC, lambda partition: len(partition.isr) == len(NODES))


def events(broker: BrokerProcess, name: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in list(broker.log) if line.startswith("{"))
    return [line for line in lines if line["event"] == name]


def no_failures(three: EtcdAndThreeBrokers) -> None:
    for broker in three.brokers.values():
        # A broker may be stopped amid a handshake with another, or before its first answer to it.
        refused = [each for each in events(broker, "peer_refused") if each["reason"] != "closed_after_handshake"]
        failed = [each for each in events(broker, "tls_handshake_failed") if each["reason"] != "closed_in_handshake"]
        assert refused == failed == []
        assert events(broker, "certificates_not_reloaded") == []


async def test_certificates_and_the_ca_change_under_load_without_an_error(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    three = SecureBrokers(tmp_path / "three")
    for node_id in NODES:
        three.give_certificate(node_id, old)
        three.give_cas(node_id, old)
    try:
        await asyncio.to_thread(three.start)
        await asyncio.to_thread(three.create, TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        sent = 0
        is_over = False

        async def load() -> None:
            nonlocal sent
            async with Producer(bootstrap_servers=three.addresses, acks="all") as producer:
                while not is_over:
                    await producer.send_and_wait(TOPIC, b"%d" % sent, partition=sent % 3)
                    sent += 1

        loading = asyncio.create_task(load())
        for step in range(1, 4):  # both CAs, then the new certificate, then the new CA alone
            for node_id in NODES:
                match step:
                    case 1:
                        three.give_cas(node_id, old, new)
                    case 2:
                        three.give_certificate(node_id, new)
                    case 3:
                        three.give_cas(node_id, new)
                await three.wait_until_read(node_id, step)
        for node_id in NODES:  # connections of brokers last, so the new certificates are tried after a restart
            await three.restart(node_id)
        is_over = True
        await loading
        assert sent > 100
        no_failures(three)
        async with Consumer(TOPIC, bootstrap_servers=three.addresses, auto_offset_reset="earliest") as consumer:
            values = {(await consumer.getone()).value for _ in range(sent)}
        assert values == {b"%d" % number for number in range(sent)}
    finally:
        await asyncio.to_thread(three.stop)


async def test_a_broker_with_a_certificate_of_another_ca_stays_out_and_the_others_serve(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "authority"), Authority(tmp_path / "other")
    three = SecureBrokers(tmp_path / "three")
    for node_id in NODES:
        three.give_certificate(node_id, authority)
        three.give_cas(node_id, authority)
    try:
        await asyncio.to_thread(three.start)
        await asyncio.to_thread(three.create, TOPIC, [[1, 2, 3]])
        await asyncio.to_thread(three.brokers[3].kill)
        three.give_certificate(3, other)
        for trusted in ((other,), (authority, other)):
            three.give_cas(3, *trusted)
            with pytest.raises(RuntimeError, match=r"this broker cannot join the cluster: broker \d at 127"):
                await asyncio.to_thread(three.brokers[3].start)
        async with Producer(bootstrap_servers=three.brokers[1].address, acks="all") as producer:
            for number in range(100):
                await producer.send_and_wait(TOPIC, b"%d" % number)
        for node_id in (1, 2):
            lines = events(three.brokers[node_id], "tls_handshake_failed")
            reasons = [line["reason"] for line in lines]
            assert len(reasons) == len(set(reasons)), "one line for each reason"
            assert "client_certificate_not_trusted" in reasons
        three.give_certificate(3, authority)
        await asyncio.to_thread(three.brokers[3].start)
        await asyncio.to_thread(three.wait, TOPIC, lambda partition: len(partition.isr) == len(NODES))
    finally:
        await asyncio.to_thread(three.stop)
