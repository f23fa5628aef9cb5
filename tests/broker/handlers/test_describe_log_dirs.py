"""DescribeLogDirs: the replicas of this broker with the sizes of their logs."""

from __future__ import annotations

import pytest
from broker.harness import Harness, Wire, batch
from semel_protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsRequestTopic


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_all_replicas_are_listed_with_their_sizes(broker: Harness, wire: Wire, version: int) -> None:
    await wire.create_topic("a", 2)
    await wire.create_topic("b")
    await wire.produce("a", batch(b"x" * 100))
    response = await wire.call(DescribeLogDirsRequest(topics=None), version)
    (result,) = response.results
    assert (result.error_code, result.log_dir) == (0, str(broker.directory))
    found = {(topic.name, row.partition_index): row for topic in result.topics for row in topic.partitions}
    assert broker.node is not None
    log = broker.node.broker.topics.partition("a", 0).log
    assert {place: row.partition_size for place, row in found.items()} == {("a", 0): log.size, ("a", 1): 0, ("b", 0): 0}
    assert all(not row.is_future_key and row.offset_lag == 0 for row in found.values())
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)


async def test_only_the_partitions_that_are_asked_for_are_listed(wire: Wire) -> None:
    await wire.create_topic("a", 3)
    await wire.create_topic("b")
    asked = [
        DescribeLogDirsRequestTopic(topic="a", partitions=[2, 7]),
        DescribeLogDirsRequestTopic(topic="missing", partitions=[0]),
    ]
    response = await wire.call(DescribeLogDirsRequest(topics=asked), 4)
    found = [(topic.name, row.partition_index) for topic in response.results[0].topics for row in topic.partitions]
    assert found == [("a", 2)]
