"""eos-offset, reordered-output: a pipeline made exactly one output from each input below its committed offset, and the
outputs have the order of their inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.events import Pipeline, Place


def eos_offset(facts: HistoryIndex) -> Iterator[Anomaly]:
    """Each input below the group's offset has one output that readers of committed data see. Later inputs have none."""
    for pipeline in facts.history.pipelines:
        found = list(_wrong(facts, pipeline))
        if found:
            yield Anomaly("eos-offset", f"group {pipeline.group}: {few(found)}")


def reordered_output(facts: HistoryIndex) -> Iterator[Anomaly]:
    """In a partition of the target, outputs of one input partition are in another order than their inputs. The inputs
    of a key are in one partition, so whichever members made the outputs, those of a key keep their order."""
    for pipeline in facts.history.pipelines:
        found = list(_reordered(facts, pipeline))
        if found:
            yield Anomaly("reordered-output", f"group {pipeline.group}: {few(found)}")


def _outputs(facts: HistoryIndex, pipeline: Pipeline) -> Iterator[tuple[Place, int, str]]:
    """The outputs that readers of committed data see: partition, offset, and the value of the input."""
    for place, end in facts.final.partitions.items():
        if place[0] != pipeline.target:
            continue
        for row in end.committed:
            made = facts.by_value.get(row.value) if row.value is not None else None
            if made is not None and made.sent.made_from is not None:
                yield place, row.offset, made.sent.made_from


def _reordered(facts: HistoryIndex, pipeline: Pipeline) -> Iterator[str]:
    inputs = {
        row.value: (place, row.offset)
        for place, end in facts.final.partitions.items()
        if place[0] == pipeline.source
        for row in end.committed
    }
    last: dict[tuple[Place, Place], int] = {}
    for place, offset, value in _outputs(facts, pipeline):
        if value not in inputs:
            continue
        source, position = inputs[value]
        before = last.get((place, source), -1)
        if position < before:
            yield (
                f"{place[0]}-{place[1]}@{offset} is made of {source[0]}-{source[1]}@{position}, after an output of "
                f"@{before}"
            )
        last[place, source] = position


def _wrong(facts: HistoryIndex, pipeline: Pipeline) -> Iterator[str]:
    outputs = Counter(value for _, _, value in _outputs(facts, pipeline))
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
