"""Three brokers with two listeners each: a client of one listener meets every broker there, over TLS too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from semel import Admin, Consumer, Producer
from semel.admin import NewTopic
from semel_broker.testing.authority import Authority
from support.three import EtcdAndThreeBrokers

pytestmark = [pytest.mark.real_time, pytest.mark.thorough]
PARTITIONS = 6


async def test_each_listener_reaches_all_brokers(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    three = EtcdAndThreeBrokers(
        tmp_path,
        **{
            "listeners": "INSIDE://127.0.0.1:0,SECURE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,SECURE:SSL",
            "ssl.keystore.location": str(authority.issue("server", "127.0.0.1")),
        },
    )
    three.start()
    try:
        tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": str(authority.ca_file)}
        for listener, security in (("INSIDE", {}), ("SECURE", tls)):
            ports = {node_id: broker.ports[listener] for node_id, broker in three.brokers.items()}
            given: dict[str, Any] = {"bootstrap_servers": f"127.0.0.1:{ports[2]}", **security}
            async with Admin(**given) as admin:
                assert {n: each.port for n, each in (await admin.describe_cluster()).brokers.items()} == ports
                await admin.create_topics([NewTopic(listener, PARTITIONS, 3)])
            async with Producer(**given) as producer:
                for number in range(60):
                    await producer.send(listener, b"%d" % number, partition=number % PARTITIONS)
            async with Consumer(listener, **given, group_id=listener, auto_offset_reset="earliest") as consumer:
                values = [(await consumer.getone()).value for _ in range(60)]
            assert sorted(values) == sorted(b"%d" % number for number in range(60))
    finally:
        three.stop()
