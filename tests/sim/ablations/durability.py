"""Safeguards of durability: data that a crash could remove is not acknowledged, not shown and not relied on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from semel_broker.cluster.local_store import LocalStore
from semel_broker.coordination.journal import Journal
from semel_broker.coordination.producer_ids import BLOCK_SIZE, ProducerIds
from semel_broker.handlers import k00_appends
from semel_broker.partitions.partition import READ_COMMITTED, Partition
from semel_broker.partitions.read_view import ReadView
from semel_protocol.messages.k00_produce import ProduceResponse
from semel_storage.disk.debts import Debts
from semel_storage.disk.disk import Buffer
from semel_storage.disk.memory_disk import _Inode
from semel_storage.log import recovery
from semel_storage.log.durability import Durability
from semel_storage.log.log import AppendResult, Log
from semel_storage.log_directory import LogDirectory

from sim.ablations import occasions
from sim.ablations.ablation import Seam, both, broker_ends, faults, power_fails, safeguard
from sim.disk import SimDisk, SimFile
from sim.plan import RunPlan


def with_fsync(plan: RunPlan) -> bool:
    return plan.settings.get("durability") != "os"


def slow_disk(plan: RunPlan) -> bool:
    """Whether a sync takes long, so that data is unsynced for a while."""
    return plan.disk.sync_ms[1] > 10 or faults("slow disk")(plan)


def frequent_checkpoints(plan: RunPlan) -> bool:
    """Whether snapshots are written often."""
    return bool(plan.settings["log.flush.offset.checkpoint.interval.ms"] == 500)


def some_wait_for_the_leader_alone(plan: RunPlan) -> bool:
    """Whether some clients write with acks=1."""
    return any(client.settings.get("acks") == 1 for workload in plan.workloads for client in workload.clients)


POWER_LOSS = both(with_fsync, power_fails)
"""Plans in which a power loss removes unsynced data, although the broker promises durability."""
POWER_LOSS_ON_SLOW_DISK = both(POWER_LOSS, slow_disk)


@safeguard("sync before ack", "an acknowledged record survives a power loss", shows=POWER_LOSS)
def sync_before_ack(seam: Seam) -> None:
    async def at_once(response: ProduceResponse, *_: object) -> ProduceResponse:
        return response

    seam.replace(k00_appends, "_when_committed", at_once)


@safeguard(
    "acks=1 waits for the disk",
    "a record that a leader without followers acknowledged with acks=1 survives a power loss",
    "plain",
    shows=both(POWER_LOSS_ON_SLOW_DISK, some_wait_for_the_leader_alone),
)
def acks_1_waits(seam: Seam) -> None:
    seam.replace(Partition, "storing", lambda *_: None)


@safeguard(
    "high watermark follows the sync",
    "the high watermark covers durable records only, and acknowledgements follow it",
    shows=POWER_LOSS,
)
def watermark_follows_sync(seam: Seam) -> None:
    def at_once(append: Callable[..., AppendResult]) -> Callable[..., AppendResult]:
        def appended(self: Partition, *args: Any, **more: Any) -> AppendResult:
            result = append(self, *args, **more)
            if self._fsync and not result.duplicate:
                self.view.advance(self.end_offset)
            return result

        return appended

    seam.replace(Partition, "append", at_once(Partition.append))
    seam.replace(Partition, "append_marker", at_once(Partition.append_marker))


@safeguard(
    "readers stay below the high watermark",
    "consumers read no record that a power loss could remove",
    shows=POWER_LOSS_ON_SLOW_DISK,
)
def readers_below_watermark(seam: Seam) -> None:
    def visible_end(self: ReadView, isolation: int) -> int:
        if isolation == READ_COMMITTED or self._log is None:
            return self.last_stable_offset
        return self._log.end_offset

    seam.replace(ReadView, "visible_end", visible_end)


@safeguard(
    "sync before offsets are committed",
    "a group's committed offset survives a power loss",
    shows=POWER_LOSS_ON_SLOW_DISK,
)
def sync_before_offsets(seam: Seam) -> None:
    write = Journal.write

    def hasty(
        self: Journal,
        rows: Any,
        apply: Callable[[], None],
        refuse: Callable[[Exception], None],
        producer: Any = None,
        **more: bool,
    ) -> None:
        refused: list[Exception] = []
        write(self, rows, lambda: None, refused.append, producer, **more)
        if refused:
            refuse(refused[0])
        else:
            apply()

    seam.replace(Journal, "write", hasty)


@safeguard(
    "topics are durable",
    "a topic that was created, grown or deleted stays so after a power loss",
    "admin",
    shows=power_fails,
)
def topics_durable(seam: Seam) -> None:
    async def hasty(self: LocalStore, revision: int) -> None:
        if self._flushing is None and self._pending:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    seam.replace(LocalStore, "_durable", hasty)


@safeguard("producer ids are claimed first", "no two producers ever get the same id", shows=broker_ends)
def ids_claimed_first(seam: Seam) -> None:
    async def claim(self: ProducerIds) -> int:
        return self._end if self._end % BLOCK_SIZE == 0 else 0

    seam.replace(ProducerIds, "_claim", claim)


# A start after a crash


@safeguard(
    "CRC at recovery",
    "a batch that a power loss left half written is not taken for a whole one",
    shows=POWER_LOSS_ON_SLOW_DISK,
)
def crc_at_recovery(seam: Seam) -> None:
    seam.replace(recovery, "crc_ok", lambda batch, header: True)


@safeguard(
    "torn tail cut", "batches are not appended after a batch that a power loss left half written", shows=power_fails
)
def torn_tail_cut(seam: Seam) -> None:
    seam.replace(recovery._Scan, "_cut", lambda *_: None)


@safeguard(
    "recovered bytes are synced",
    "records that a killed process left in the page cache are made durable",
    shows=POWER_LOSS,
)
def recovered_synced(seam: Seam) -> None:
    recover = recovery.recover

    def hasty(*args: Any, **more: Any) -> recovery.Recovered:
        sync_now = SimFile.sync_now
        SimFile.sync_now = lambda self: None  # type: ignore[method-assign]
        try:
            return recover(*args, **more)
        finally:
            SimFile.sync_now = sync_now  # type: ignore[method-assign]

    seam.replace(recovery, "recover", hasty)


@safeguard(
    "clean shutdown file is removed first",
    "a start after a crash is not taken for a start after a clean shutdown",
    shows=both(power_fails, faults("terminate broker")),
)
def clean_mark(seam: Seam) -> None:
    take = LogDirectory._take

    def hasty(self: LogDirectory, left_logs_min: int) -> None:
        marker = self._path(".kafka_cleanshutdown")
        was_clean = self.disk.exists(marker)
        take(self, left_logs_min)
        if was_clean:
            self.disk.write_atomically(marker, b"{}")

    seam.replace(LogDirectory, "_take", hasty)


@safeguard(
    "sync before the recovery point",
    "records below the recovery point, which a start does not check, are durable",
    shows=both(power_fails, slow_disk, frequent_checkpoints),
)
def sync_before_recovery_point(seam: Seam) -> None:
    async def hasty(self: Durability) -> None:
        self.write_snapshot()
        self.recovery_point = self._snapshot_offset

    seam.replace(Durability, "checkpoint", hasty)


@safeguard("directories are synced", "a synced file still has its name after a power loss", shows=power_fails)
def directories_synced(seam: Seam) -> None:
    seam.replace(SimDisk, "sync_dir", lambda self, path: None)
    seam.replace(Debts, "add_names", lambda self, directory: None)


@safeguard(
    "debts are paid", "names and topic ids are durable before the first record counts as durable", shows=power_fails
)
def debts_paid(seam: Seam) -> None:
    seam.replace(Debts, "of", lambda self, path: [])


@safeguard(
    "an opened log owes what a killed process left",
    "names and topic ids that a killed process did not sync are durable before the next records are",
    shows=both(power_fails, faults("kill broker", "kill amid changes")),
)
def opened_log_owes(seam: Seam) -> None:
    seam.replace(LogDirectory, "_owe", lambda self, file, directory: None)


@safeguard(
    "a roll waits for the name of the segment before it",
    "a power loss takes no segment from the middle of a log whose offsets have gaps",
    "compacted",
    occasion=occasions.rolls_and_power_losses,
)
def rolls_at_once(seam: Seam) -> None:
    seam.replace(Log, "can_roll", property(lambda self: True))


@safeguard(
    "deletions of topics wait for the checkpoint file",
    "the next start does not miss the directories of deleted topics",
    "renewal",
    occasion=occasions.renewed_and_killed,
)
def deletions_wait(seam: Seam) -> None:
    async def hasty(self: LogDirectory) -> None:
        await self.disk.asides_done()

    seam.replace(LogDirectory, "forgotten", hasty)


@safeguard(
    "DeleteRecords waits for the checkpoint file",
    "records that were deleted stay deleted after a power loss",
    "retention",
    occasion=occasions.deletions_answered_early,
)
def deleted_records_stay_deleted(seam: Seam) -> None:
    async def at_once(self: Partition) -> None:
        """Return at once. The file is saved later."""

    seam.replace(Partition, "log_start_saved", at_once)


@safeguard(
    "atomic replacement",
    "after a crash, a replaced file has either its old or its new content",
    shows=faults("kill amid changes", "power loss amid changes", "full disk"),
)
def atomic_replacement(seam: Seam) -> None:
    def in_place(self: SimDisk, path: str, data: Buffer, *, durable: bool, private: bool) -> None:
        self.burn()
        inode = self._names.setdefault(path, _Inode())
        inode.data.clear()
        inode.synced_size = 0
        if durable:
            self._durable_names[path] = inode
        self.burn()
        inode.data += data
        if durable:
            inode.synced_size = len(inode.data)

    seam.replace(SimDisk, "_write", in_place)
