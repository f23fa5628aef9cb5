"""docker-compose.secure.yml as it stands: clients need a certificate, brokers authenticate each other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from semel import Admin, Consumer, NewTopic, Producer
from semel.errors import KafkaError
from semel_broker.testing.authority import Authority
from support import etcd

from cluster import choice, compose
from cluster.cluster import Cluster

FILE = Path(__file__).parents[2] / "docker-compose.secure.yml"
BROKERS = ("broker-1", "broker-2", "broker-3")


def test_brokers_differ_in_nothing_but_their_names_and_ports() -> None:
    project = compose.load(FILE, {})
    assert project.enabled() == ["etcd", *BROKERS]
    assert len({str(project.services[name].environment) for name in BROKERS}) == 1
    for name in BROKERS:
        assert [mount.target for mount in compose.mounts(project.services[name])] == [
            "/var/lib/semel",
            "/etc/semel/tls",
        ]
        (port,) = compose.ports(project.services[name])
        assert port.host == "127.0.0.1"


@pytest.mark.thorough
@pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)
async def test_a_client_with_a_certificate_is_served_by_all_brokers_and_no_other_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    authority.issue("server", "localhost", "127.0.0.1", *BROKERS)
    client = authority.issue("client")
    stranger = authority.issue("stranger")
    ports = {f"BROKER_{i}_PORT": str(port) for i, port in enumerate(etcd.free_ports(3), 1)}
    given = {**os.environ, **ports, "TLS_FILES": str(tmp_path / "tls"), "PEER_NAMES": ""}
    project, state = compose.load(FILE, given), tmp_path / "state"
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports.values())

    def settings(certificate: Path | None) -> dict[str, Any]:
        own = {} if certificate is None else {"ssl_certfile": str(certificate)}
        return {
            "bootstrap_servers": addresses,
            "security_protocol": "SSL",
            "ssl_cafile": str(authority.ca_file),
            **own,
        }

    async with Cluster(project, state, choice.place(project, state)):
        async with Admin(**settings(client)) as admin:
            await admin.create_topics([NewTopic("t", 3, 3)])
        async with Producer(**settings(client), acks="all") as producer:
            for number in range(30):
                await producer.send_and_wait("t", b"%d" % number, partition=number % 3)
        async with Consumer("t", **settings(client), auto_offset_reset="earliest") as consumer:
            assert len({(await consumer.getone()).value for _ in range(30)}) == 30
        async with Admin(**settings(stranger)) as admin:
            with pytest.raises(KafkaError):
                await admin.create_topics([NewTopic("u", 1, 3)])
        texts = [line for file in state.glob("logs/broker-*.log") for line in file.read_text().splitlines()]
        lines = [json.loads(text) for text in texts if '"decision":' in text]
        assert ("allowed", "User:client", "t") in {
            (each["decision"], each["principal"], each["resource"]) for each in lines
        }
        assert ("denied", "User:stranger", "u") in {
            (each["decision"], each["principal"], each["resource"]) for each in lines
        }
