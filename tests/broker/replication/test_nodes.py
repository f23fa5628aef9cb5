"""Whole brokers over an etcd, with clients: leaders are stopped one after the other, and every record is there once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.replication.trio import Trio
from semel import Admin, Consumer, NewTopic, Producer
from support.etcd import EtcdProcess

pytestmark = pytest.mark.real_time


@pytest.fixture
async def trio(tmp_path: Path, etcd_process: EtcdProcess) -> AsyncIterator[Trio]:
    trio = Trio(tmp_path, etcd_process)
    yield trio
    await trio.stop(*trio.nodes)


async def test_every_record_is_there_once_although_each_leader_in_turn_is_stopped(trio: Trio) -> None:
    await trio.start(1, 2, 3)
    async with Admin(bootstrap_servers=trio.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("t", 1, 3, topic_configs={"min.insync.replicas": "2"})])
    sent: list[bytes] = []
    async with Producer(bootstrap_servers=trio.bootstrap_servers) as producer:
        for _ in range(3):
            for _ in range(20):
                sent.append(b"%d" % len(sent))
                await producer.send_and_wait("t", sent[-1])
            leader = trio.leader()
            stopping = asyncio.create_task(trio.stop(leader))
            for _ in range(20):
                sent.append(b"%d" % len(sent))
                await producer.send_and_wait("t", sent[-1])
            await stopping
            await trio.start(leader)
    async with Consumer("t", bootstrap_servers=trio.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        found = [(await anext(consumer)).value for _ in sent]
    assert found == sent
