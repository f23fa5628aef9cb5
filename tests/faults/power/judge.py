"""PURE: compares the answers that clients got before a power loss with the data that they find after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from faults.power.work import AcknowledgedWork, Place


class FoundPartition(msgspec.Struct):
    """A partition as a read-committed consumer reads it: its records as (offset, key, value)."""

    start: int
    end: int
    rows: list[tuple[int, str | None, str]]

    def values(self) -> list[str]:
        return [value for _, _, value in self.rows]


class FoundAfterLoss(msgspec.Struct):
    """The data of the broker after the loss. `committed`: the offsets of the group."""

    logs: Mapping[Place, FoundPartition]
    committed: Mapping[Place, int]

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.logs}


def problems(answers: AcknowledgedWork, at: int, found: FoundAfterLoss) -> Iterator[str]:
    """The acknowledged changes that a power loss after the disk call `at` has removed, and removed data that it has
    restored.
    """
    yield from _topics(answers, at, found)
    yield from _records(answers, at, found)
    yield from _transactions(answers, at, found)
    yield from _deletions(answers, at, found)
    yield from _keys(answers, at, found)
    for place in {each for _, each, _ in answers.committed}:
        offsets = [offset for when, each, offset in answers.committed if each == place and when <= at]
        if offsets and found.committed.get(place, -1) < offsets[-1]:
            yield f"the group has offset {found.committed.get(place)} of {name(place)}, committed was {offsets[-1]}"


def _topics(answers: AcknowledgedWork, at: int, found: FoundAfterLoss) -> Iterator[str]:
    for topic in {each for _, _, each, _ in answers.topics}:
        changes = [change for change in answers.topics if change[2] == topic and change[0] <= at]
        if not changes or changes[-1][1] > at:
            continue  # the last one was not acknowledged yet
        is_created = changes[-1][3]
        if is_created != (topic in found.topics):
            yield f"topic {topic} was {'created' if is_created else 'deleted'}, and is {'not ' * is_created}there"


def _records(answers: AcknowledgedWork, at: int, found: FoundAfterLoss) -> Iterator[str]:
    for when, place, offset, value in answers.stored:
        if when > at or _may_be_deleted(answers, at, place, offset, value):
            continue
        log = found.logs.get(place)
        if log is None:
            yield f"{name(place)} is not there, it had {value.strip('.')!r}"
        elif offset >= log.end:
            yield f"{name(place)} ends at {log.end}, stored was offset {offset}"
        elif (place[0] != "kept" or offset >= log.start) and value not in log.values():
            yield f"{name(place)} has lost {value.strip('.')!r} at {offset}"
    for place, log in found.logs.items():
        values = log.values()
        if len(set(values)) < len(values):
            yield f"{name(place)} has a value twice"
        for value in values:
            own, deletions = answers.sent.get(value, (None, 0))
            deletion = answers.deletion(place[0], deletions)
            if own != place:
                yield f"{name(place)} has {value.strip('.')!r}, which was sent to {own}"
            elif deletion is not None and deletion[1] <= at:
                yield f"{name(place)} has {value.strip('.')!r} of a deleted topic"


def _may_be_deleted(answers: AcknowledgedWork, at: int, place: Place, offset: int, value: str) -> bool:
    deletion = answers.deletion(place[0], answers.sent[value][1])
    if deletion is not None and deletion[0] <= at:
        return True
    return any(asked <= at and each == place and offset < before for asked, each, before in answers.deleting)


def _transactions(answers: AcknowledgedWork, at: int, found: FoundAfterLoss) -> Iterator[str]:
    visible = {value for place, log in found.logs.items() if place[0] == "first" for value in log.values()}
    for _, is_committed, values in answers.transactions:
        seen = [value for value in values if value in visible]
        if seen and not is_committed:
            yield f"{seen[0]!r} of an aborted transaction is visible"
        elif seen and len(seen) < len(values):
            yield f"a transaction is torn: {seen} of {values}"


def _deletions(answers: AcknowledgedWork, at: int, found: FoundAfterLoss) -> Iterator[str]:
    for place in {each for _, each, _ in answers.deleted}:
        before = max((below for when, each, below in answers.deleted if each == place and when <= at), default=0)
        if place in found.logs and found.logs[place].start < before:
            yield f"{name(place)} starts at {found.logs[place].start}, and was deleted before {before}"


def _keys(answers: AcknowledgedWork, at: int, found: FoundAfterLoss) -> Iterator[str]:
    log = found.logs.get(("compacted", 0))
    newest = {} if log is None else {key: value for _, key, value in log.rows}
    for key in {each for _, each, _ in answers.keyed}:
        acknowledged = [value for when, each, value in answers.keyed if each == key and when <= at]
        sent = [value for each, value in answers.keyed_sent if each == key]
        if acknowledged and newest.get(key) not in sent[sent.index(acknowledged[-1]) :]:
            yield f"key {key} has {str(newest.get(key)).strip('.')!r}, stored was {acknowledged[-1].strip('.')!r}"


def name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
