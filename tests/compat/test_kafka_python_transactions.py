"""kafka-python when the broker is killed amid its transaction: the producer is lost, its successor takes over exactly.

kafka-python 3.0.12 forgets a transactional request that it wants to send while its coordinator refuses connections:
Sender._maybe_send_pending_request (producer/sender.py) takes the request off the queue, await_ready raises, and the
request is put back only `if target_node is None`, which it is not. If that was AddPartitionsToTxn, the partition stays
in _pending_partitions_in_transaction, its batches are ready but never drained, and commit_transaction waits without end
while the Sender spins. Against Kafka 4.1.1, killed the same way, the same producer ends in the same state. So an
application has to give such a producer up, and that is where these tests begin.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition
from support.processes import BrokerProcess
from support.strangers import STRANGERS, StrangerRecord
from support.tiers import tiered
from support.transactional import BATCH, KafkaPythonPipeline

COUNT = 200
BEFORE_OFFSETS, BEFORE_COMMIT, AMID_COMMIT = "before the offsets", "before the commit", "amid the commit"


class InterruptedPipeline(KafkaPythonPipeline):
    """A pipeline that stops its transaction at a given moment."""

    def go_until(self, moment: str) -> int:
        """Run one batch up to `moment`. Returns its number of inputs."""
        found: dict[TopicPartition, list[Any]] = {}
        while not found:
            found = self.consumer.poll(300, max_records=BATCH)
        self.producer.begin_transaction()
        for records in found.values():
            for record in records:
                self.producer.send(self.target, b"done-" + record.value, partition=record.partition)
        self.producer.flush(10)
        if moment != BEFORE_OFFSETS:
            offsets = {tp: OffsetAndMetadata(records[-1].offset + 1, "", -1) for tp, records in found.items()}
            self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        self.consumer.unsubscribe()  # leaves the group: otherwise the successor waits for the session to expire
        if moment == AMID_COMMIT:
            threading.Thread(target=self._commit_for_ever, daemon=True).start()
        return sum(map(len, found.values()))

    def _commit_for_ever(self) -> None:
        with suppress(KafkaError):  # the outcome is not known: the successor has to find out
            self.producer.commit_transaction()


def read(address: str, topic: str, count: int, isolation: str) -> list[StrangerRecord]:
    rows: list[StrangerRecord] = STRANGERS[0](address).consume(topic, count, isolation=isolation)
    return rows


@pytest.mark.parametrize(
    "moment", tiered([BEFORE_OFFSETS, BEFORE_COMMIT, AMID_COMMIT], lambda moment: moment is AMID_COMMIT)
)
def test_the_successor_of_a_producer_whose_broker_was_killed_takes_over_exactly(
    own_broker: BrokerProcess, topic: str, moment: str
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    for name in (source, target):
        STRANGERS[0](own_broker.address).create_topic(name, 3)
    STRANGERS[0](own_broker.address).produce(source, [(i % 3, None, b"%d" % i) for i in range(COUNT)])
    lost = InterruptedPipeline(own_broker.address, source, target, "group", "tx")
    with lost:
        lost.run(COUNT // 2)
        left_open = lost.go_until(moment)
        own_broker.kill()
        own_broker.start()
    with KafkaPythonPipeline(own_broker.address, source, target, "group", "tx") as successor:
        successor.run(COUNT - successor.committed())
    found = [row.value for row in read(own_broker.address, target, COUNT, "read_committed")]
    assert sorted(found) == sorted(b"done-%d" % i for i in range(COUNT))
    if moment != AMID_COMMIT:
        everything = read(own_broker.address, target, COUNT + left_open, "read_uncommitted")
        assert len(everything) == COUNT + left_open, "what was left open was aborted, not rewritten"
