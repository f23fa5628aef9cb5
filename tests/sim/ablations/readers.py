"""Safeguards of readers of committed records, and of deletion and compaction."""

from __future__ import annotations

from typing import Any

from semel_broker.partitions import cleaner
from semel_broker.partitions.read_view import ReadView
from semel_protocol.batch import BatchHeader
from semel_storage.compaction.compaction import Dirtiness, dirtiness
from semel_storage.compaction.filter import TransactionFates
from semel_storage.log import recovery
from semel_storage.log.log import Log
from semel_storage.segments.segment import Segment
from semel_storage.segments.segments import Segments
from semel_storage.segments.transaction_index import TransactionIndex

from sim.ablations.ablation import Seam, broker_ends, faults, power_fails, safeguard
from sim.ablations.occasions import deletions_cut_short
from sim.ablations.worlds import no_recovery_points
from sim.plan import RunPlan

TRANSACTIONAL = ("transactional", "pipeline")


@safeguard(
    "fetch ends at the last stable offset",
    "readers of committed data get no record of an open transaction",
    *TRANSACTIONAL,
)
def fetch_ends_at_lso(seam: Seam) -> None:
    seam.replace(ReadView, "last_stable_offset", property(lambda self: self.high_watermark))


@safeguard(
    "list of aborted transactions", "readers of committed data learn which transactions were aborted", *TRANSACTIONAL
)
def list_of_aborted(seam: Seam) -> None:
    read = Log.read_committed

    def silent(self: Log, *args: Any, **more: Any) -> tuple[bytes, list[bytes]]:
        return read(self, *args, **more)[0], []

    seam.replace(Log, "read_committed", silent)


@safeguard(
    "aborted transactions of later segments",
    "readers also learn of aborted transactions whose marker is in a later segment",
    *TRANSACTIONAL,
)
def aborted_later(seam: Seam) -> None:
    def of_one_segment(self: Segments, start: int, end: int) -> bytes:
        segment = self.locate(start)[0]
        return segment.aborted.overlapping(start, end)[0]

    seam.replace(Segments, "aborted_entries", of_one_segment)


@safeguard(
    "index of aborted transactions survives",
    "index entries that a crash removed are detected and built again",
    *TRANSACTIONAL,
    shows=broker_ends,
)
def aborted_survive(seam: Seam) -> None:
    def trusting(self: recovery._Scan, segment: Segment, up_to: int) -> None:
        segment.aborted.truncate(up_to)
        segment.aborted.close()

    async def nothing(self: TransactionIndex) -> None:
        pass

    seam.replace(recovery._Scan, "_check_aborted", trusting)
    seam.replace(TransactionIndex, "sync", nothing)
    seam.replace(TransactionIndex, "sync_now", lambda self: None)


@safeguard(
    "replay notes aborted transactions",
    "aborted transactions above the recovery point are known again after a crash",
    *TRANSACTIONAL,
    shows=broker_ends,
)
def replay_notes_aborted(seam: Seam) -> None:
    note = recovery._note

    def forgetful(*args: Any) -> None:
        note(*args)

    seam.replace(recovery, "_note", forgetful)


# Compaction


def compacted_up_to(seam: Seam, name: str) -> None:
    """Switch off one of the two upper bounds of compaction: "recovery_point" or "last_stable_offset"."""

    def greedy(log: Log, first_dirty_offset: int, *, last_stable_offset: int, now_ms: int) -> Dirtiness:
        recovery_point = log.durability.recovery_point
        if name == "recovery_point":
            log.durability.recovery_point = log.end_offset
        else:
            last_stable_offset = log.end_offset
        try:
            return dirtiness(log, first_dirty_offset, last_stable_offset=last_stable_offset, now_ms=now_ms)
        finally:
            log.durability.recovery_point = recovery_point

    seam.replace(cleaner, "dirtiness", greedy)


def long_transactions(plan: RunPlan) -> bool:
    """Whether some transactions outlast their timeout, while logs are rolled and checkpoints are written."""
    clients = [client for workload in plan.workloads for client in workload.clients if client.role == "transactor"]
    ops = [op for client in clients for op in client.ops]
    return plan.settings["log.flush.offset.checkpoint.interval.ms"] <= 5_000 and any(
        op.kind == "abandon" or op.args.get("end") == "overtime" for op in ops
    )


@safeguard(
    "compaction stays below the last stable offset",
    "an undecided record does not replace older records of its key",
    "compacted",
    shows=long_transactions,
)
def compaction_below_lso(seam: Seam) -> None:
    compacted_up_to(seam, "last_stable_offset")


@safeguard(
    "compaction stays below the recovery point",
    "only a durable record replaces older records of its key",
    "compacted",
    shows=power_fails,
    needless="it also stays below the last stable offset, and that below the high watermark, which follows the sync; "
    "without that sync (durability os) there is no promise about a power loss",
)
def compaction_below_recovery_point(seam: Seam) -> None:
    compacted_up_to(seam, "recovery_point")


@safeguard("aborted records outdate nothing", "compaction keeps the last committed value of a key", "compacted")
def aborted_outdate_nothing(seam: Seam) -> None:
    can_discard = TransactionFates.can_discard

    def naive(self: TransactionFates, header: BatchHeader, data: memoryview) -> bool:
        return can_discard(self, header, data) and header.is_control

    seam.replace(TransactionFates, "can_discard", naive)


@safeguard(
    "markers stay with their records",
    "compaction removes no marker while records of its transaction remain",
    "compacted",
)
def markers_stay(seam: Seam) -> None:
    seam.replace(TransactionFates, "_can_discard_marker", lambda *_: True)


@safeguard(
    "swaps are finished at the start",
    "a compaction that a crash interrupted loses no segment",
    "compacted",
    shows=faults("kill amid changes", "power loss amid changes"),
)
def swaps_finished(seam: Seam) -> None:
    seam.replace(recovery, "recover_swaps", lambda *_: None)


# Deletion


@safeguard(
    "deletions are finished at the start",
    "a deletion that a power loss interrupted removes no producer state",
    "retention",
    given=no_recovery_points,
    occasion=deletions_cut_short,
)
def deletions_finished(seam: Seam) -> None:
    seam.replace(recovery, "finish_deletion", lambda disk, directory, names, start_offset, *, now_ms: names)
