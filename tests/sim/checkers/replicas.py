"""replica-divergence, false-commit: replicas have the same records and derived state; committed records are safe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.final import ReplicaLog, StoredRecord


def replica_divergence(facts: HistoryIndex) -> Iterator[Anomaly]:
    """Two replicas differ below the high watermark at the end, when all have had time to fetch everything."""
    found: list[str] = []
    for (topic, index), replicas in facts.final.replicas.items():
        for other in replicas[1:]:
            found += [
                f"{topic}-{index} on {replicas[0].broker} and {other.broker}: {what}"
                for what in differences(replicas[0], other)
            ]
    if found:
        yield Anomaly("replica-divergence", few(found))


def false_commit(facts: HistoryIndex) -> Iterator[Anomaly]:
    """The findings of `sim.commitment` during the run: a record was committed that a possible leader did not have, or
    that too few replicas had; or a broker without a valid lease counted as leader."""
    if facts.final.uncommitted:
        yield Anomaly("false-commit", few(facts.final.uncommitted))


def differences(one: ReplicaLog, other: ReplicaLog) -> Iterator[str]:
    """The differences between two replicas, from the higher of their log start offsets on: replicas may delete the
    beginnings of their logs at different times."""
    start = max(one.start_offset, other.start_offset)
    up_to = max(one.high_watermark, other.high_watermark)
    for name in ("high_watermark", "last_stable_offset"):
        here, there = getattr(one, name), getattr(other, name)
        if here != there:
            yield f"their {name.replace('_', ' ')} is {here} and {there}"
    if min(one.end_offset, other.end_offset) < up_to:
        yield f"they end at {one.end_offset} and {other.end_offset}, below what is committed, {up_to}"
    if one.records is None or other.records is None:
        yield from _batches(one, other, start, up_to)
        yield from _sets("aborted transactions", _since(one, start), _since(other, start))
    else:
        yield from _records(one.records, other.records, start, up_to)
        yield from _records(other.records, one.records, start, up_to)
    yield from _producers(one, other, is_compacted=one.records is not None)
    yield from _sets("group offsets", list(one.groups.items()), list(other.groups.items()))


def _batches(one: ReplicaLog, other: ReplicaLog, start: int, up_to: int) -> Iterator[str]:
    here, there = ([each for each in replica.batches if start <= each[0] < up_to] for replica in (one, other))
    for mine, yours in zip(here, there, strict=False):
        if mine[0] != yours[0]:
            yield f"a batch begins at {mine[0]}, and at {yours[0]}"
            return
        if mine[1] != yours[1]:
            at = next((at for at, (a, b) in enumerate(zip(mine[1], yours[1], strict=False)) if a != b), "its end")
            yield f"the batch at {mine[0]} is another one, from byte {at} on"
            return
    if len(here) != len(there):
        yield f"they have {len(here)} and {len(there)} batches from {start} to {up_to}"


def _records(mine: Sequence[StoredRecord], yours: Sequence[StoredRecord], start: int, up_to: int) -> Iterator[str]:
    """For compacted logs: common records are equal, and a missing record was replaced by a later one of its key."""
    there = {record.offset: record for record in yours}
    latest: dict[bytes | None, int] = {
        record.key: record.offset for record in (*mine, *yours) if record.key is not None
    }
    for record in mine:
        if not start <= record.offset < up_to:
            continue
        twin = there.get(record.offset)
        if twin is not None:
            if twin.payload != record.payload:
                yield f"@{record.offset} is {record.payload!r} and {twin.payload!r}"
                return
        elif not record.is_bare and latest.get(record.key, -1) <= record.offset:
            yield f"@{record.offset} ({record.payload!r}) is missing on one, the last of its key"
            return


def _producers(one: ReplicaLog, other: ReplicaLog, *, is_compacted: bool) -> Iterator[str]:
    """Differences in the state of producers, also of those whose records are deleted (KIP-360).

    Compaction empties or removes a marker without data. A replica that reads the log later does not learn its
    coordinator epoch, or takes that of an older marker. State expires on each replica by its own clock.
    """
    here, there = ({state[0]: state for state in replica.producers} for replica in (one, other))
    for producer_id in sorted({**here, **there}):
        mine, yours = here.get(producer_id), there.get(producer_id)
        if mine is None or yours is None:
            is_fine = (one if mine is None else other).may_have_expired
        elif is_compacted:
            is_fine = mine[:4] + mine[5:] == yours[:4] + yours[5:]
        else:
            is_fine = mine == yours
        if not is_fine:
            yield f"producer (id, epoch, sequence, offset, coordinator epoch, first offset) {mine} is {yours} there"


def _since(replica: ReplicaLog, start: int) -> list[tuple[int, int, int]]:
    return [each for each in replica.aborted if each[1] >= start]


def _sets(what: str, here: Sequence[object], there: Sequence[object]) -> Iterator[str]:
    if sorted(map(repr, here)) != sorted(map(repr, there)):
        mine = [each for each in here if each not in there]
        yours = [each for each in there if each not in here]
        yield f"{what}: only one has {few(mine) or 'nothing'}, only the other {few(yours) or 'nothing'}"
