"""eos-offset: a pipeline made exactly one output from each input below its committed offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.events import Pipeline


def eos_offset(facts: HistoryIndex) -> Iterator[Anomaly]:
    """Each input below the group's offset has one output that readers of committed data see. Later inputs have none."""
    for pipeline in facts.history.pipelines:
        found = list(_wrong(facts, pipeline))
        if found:
            yield Anomaly("eos-offset", f"group {pipeline.group}: {few(found)}")


def _wrong(facts: HistoryIndex, pipeline: Pipeline) -> Iterator[str]:
    outputs: Counter[str] = Counter()
    for place, end in facts.final.partitions.items():
        if place[0] != pipeline.target:
            continue
        for row in end.committed:
            made = facts.by_value.get(row.value) if row.value is not None else None
            if made is not None and made.sent.made_from is not None:
                outputs[made.sent.made_from] += 1
    committed = facts.final.groups.get(pipeline.group, {})
    for place, end in facts.final.partitions.items():
        if place[0] != pipeline.source:
            continue
        below = committed.get(place, 0)
        for row in end.committed:
            count = outputs[row.value] if row.value is not None else 0
            if count != (row.offset < below):
                yield (
                    f"{row.value!r} at {place[0]}-{place[1]}@{row.offset} has {count} outputs, and the group's offset "
                    f"is {below}"
                )
