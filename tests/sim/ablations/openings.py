"""Safeguards of a broker that listens before all logs are open: a log that is not open yet never looks empty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel_broker.cluster.image import PartitionView
from semel_broker.partitions.local import LocalPartitions
from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topics
from semel_protocol.errors import KafkaError
from semel_storage.segments.log_config import LogConfig

from sim.ablations import occasions
from sim.ablations.ablation import Seam, both, power_fails, safeguard
from sim.disk import SimDisk


@safeguard(
    "a log is opened before its first use",
    "while a broker opens its logs after it listens, none of them looks empty",
    "plain",
    "idempotent",
    occasion=occasions.opened_late,
)
def unopened_looks_empty(seam: Seam) -> None:
    partition = Topics.partition

    def empty(self: Topics, name: str, index: int) -> Partition:
        if self._opening is None or not self._unopened or asyncio.current_task() is self._opening:
            found = partition(self, name, index)
            if (name, index) in self._unopened:
                found.open()
                del self._unopened[name, index]
            return found
        unopened, self._unopened = self._unopened, {}
        try:
            return partition(self, name, index)
        finally:
            self._unopened = unopened

    seam.replace(Topics, "partition", empty)


@safeguard(
    "a log is opened before its partition has a role",
    "a coordinator reads the log of its partition, also if that is opened late",
    "pipeline",
    "transactional",
    "churn",
    occasion=occasions.opened_late,
)
def shown_before_its_log(seam: Seam) -> None:
    make = LocalPartitions.make

    def early(self: LocalPartitions, view: PartitionView, config: Callable[[], LogConfig], *, opens: bool) -> Partition:
        partition = make(self, view, config, opens=False)
        if opens:
            try:
                partition.open()
            except KafkaError:
                if not partition.is_offline:
                    raise
        return partition

    seam.replace(LocalPartitions, "make", early)


@safeguard(
    "logs of a killed process are synced together",
    "records that a killed process left, and that consumers have read since, survive a power loss",
    shows=both(power_fails, lambda plan: plan.settings.get("durability") != "os"),
    occasion=occasions.opened_late,
)
def left_logs_not_synced(seam: Seam) -> None:
    seam.replace(SimDisk, "sync_file_system", lambda self, directory: True)
