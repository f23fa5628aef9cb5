"""Images of a cluster, made by hand. Steps are applied to them as by a store, so that tests need no store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from semel_broker.cluster import records
from semel_broker.cluster.image import Image, PartitionView
from semel_broker.cluster.records import BrokerAdmission, BrokerRecord, Leaving, Offline, PartitionState, TopicRecord
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import ABSENT, Put, RemovedKey, StoreEntry

TOPIC, TOPIC_ID = "t", "id-of-t"


def broker(
    node_id: int,
    *,
    directory_id: str = "",
    rack: str = "",
    is_synced: bool = False,
    offline: dict[str, list[int]] | None = None,
) -> BrokerRecord:
    return BrokerRecord(
        node_id=node_id,
        incarnation="",
        directory_id=directory_id or f"directory {node_id}",
        host="127.0.0.1",
        port=9000 + node_id,
        rack=rack,
        is_synced=is_synced,
        offline=offline or msgspec.UNSET,
    )


class ImageBuilder:
    """An image that a test writes into. Each change raises the revision by one."""

    def __init__(self) -> None:
        self.image = Image()
        self.revisions: dict[str, int] = {}

    def put(self, key: str, value: object) -> int:
        revision = self.image.revision + 1
        self.revisions[key] = revision
        self.image.apply([StoreEntry(key, msgspec.json.encode(value), revision)], revision)
        return revision

    def delete(self, key: str) -> None:
        revision = self.image.revision + 1
        self.revisions.pop(key, None)
        self.image.apply([RemovedKey(key, revision)], revision)

    def registers(self, node_id: int, *, is_synced: bool = False, offline: dict[str, list[int]] | None = None) -> int:
        return self.put(records.broker_key(node_id), broker(node_id, is_synced=is_synced, offline=offline))

    def lives(self, *node_ids: int, is_synced: bool = False, offline: dict[str, list[int]] | None = None) -> None:
        for node_id in node_ids:
            epoch = self.registers(node_id, is_synced=is_synced, offline=offline)
            self.put(f"{records.ADMISSIONS}{node_id}", BrokerAdmission(epoch, is_synced))

    def dies(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.delete(records.broker_key(node_id))

    def leaves(self, node_id: int) -> None:
        kept = self.image.registration(node_id)
        assert kept is not None
        self.put(f"{records.LEAVING}{node_id}", Leaving(kept.revision))

    def goes_offline(self, node_id: int, partitions: dict[str, list[int]]) -> None:
        kept = self.image.registration(node_id)
        assert kept is not None
        self.put(f"{records.OFFLINE}{node_id}", Offline(kept.revision, partitions))

    def hangs(self, node_id: int, is_hanging: bool = True) -> None:
        kept = self.image.registration(node_id)
        assert kept is not None
        self.put(f"{records.OFFLINE}{node_id}", Offline(kept.revision, hangs=is_hanging))

    def topic(self, *replicas: Sequence[int], name: str = TOPIC, topic_id: str = TOPIC_ID) -> None:
        self.put(records.topic_key(name), TopicRecord(name, topic_id, [list(row) for row in replicas], {}))

    def state(self, leader: int, epoch: int, isr: Sequence[int], index: int = 0) -> None:
        self.put(records.partition_key(TOPIC_ID, index), PartitionState(leader, epoch, list(isr)))

    def view(self, index: int = 0) -> PartitionView:
        view = self.image.partition(TOPIC_ID, index)
        assert view is not None
        return view

    def write(self, steps: Iterable[Step]) -> int:
        """Apply the steps as a store does, and check the expectations of each. Returns the number of steps."""
        count = 0
        for step in steps:
            for expect in step.expects:
                assert self.revisions.get(expect.key, ABSENT) == expect.revision, expect
            for change in step.changes:
                if isinstance(change, Put):
                    self.put(change.key, msgspec.json.decode(change.value))
                else:
                    self.delete(change.key)
            count += 1
        return count
