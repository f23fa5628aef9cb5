"""Three whole brokers: a refusal of Fetch or Produce names the present leader and its address (KIP-951)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.cluster.brokers import until
from broker.replication.trio import Trio
from broker.wire import Wire, batch, fetch_request, produce_request
from semel import Admin, NewTopic
from semel_protocol.errors import ErrorCode
from support.etcd import EtcdProcess

pytestmark = pytest.mark.real_time


@pytest.fixture
async def trio(tmp_path: Path, etcd_process: EtcdProcess) -> AsyncIterator[Trio]:
    trio = Trio(tmp_path, etcd_process)
    await trio.start(1, 2, 3)
    yield trio
    await trio.stop(*trio.nodes)


async def test_a_follower_names_the_leader_and_its_address(trio: Trio) -> None:
    async with Admin(bootstrap_servers=trio.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("t", 1, 3)])
    await until(lambda: all(node.broker.topics.get("t") for node in trio.nodes.values()))
    leader = trio.leader()
    follower = next(node_id for node_id in trio.nodes if node_id != leader)
    topics = trio.nodes[follower].broker.topics
    expected = (leader, topics.view("t", 0).state.leader_epoch)
    wire = await Wire.connect(trio.ports[follower])
    request = fetch_request("t", 0)
    request.topics[0].topic_id = topics.required("t").topic_id
    for version in (15, 17):
        answer = await wire.call(request, version)
        (fetched,) = answer.responses[0].partitions
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = (fetched.current_leader.leader_id, fetched.current_leader.leader_epoch)
        named = [(each.node_id, each.port) for each in answer.node_endpoints]
        assert (found, named) == ((expected, [(leader, trio.ports[leader])]) if version > 15 else ((-1, -1), []))
    sent = produce_request("t", batch(b"v"))
    sent.topic_data[0].topic_id = topics.required("t").topic_id
    for version in (9, 10, 13):
        answer = await wire.call(sent, version)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = (row.current_leader.leader_id, row.current_leader.leader_epoch)
        named = [(each.node_id, each.port) for each in answer.node_endpoints]
        assert (found, named) == ((expected, [(leader, trio.ports[leader])]) if version > 9 else ((-1, -1), []))
    await wire.close()
