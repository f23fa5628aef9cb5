"""Changes of topics: create, delete, purge, settings, partitions; and one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from semel import Admin, Producer, RecordsToDelete, TopicPartition
from semel.admin import LATEST, ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from semel.diagnose import (
    StartPosition,
    Truncation,
    lag_of,
    plan_truncation,
    topics_of,
)
from semel.errors import TopicAuthorizationFailedError
from semel.structs import TopicMetadata

from semel_console.answers import ChangeAnswer
from semel_console.query import must_be_typed, position

ALL = "all"
NO_EFFECT = "Has no effect. "
"""Begins the documentation of a setting that the broker takes and does not use."""


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    """partitions, replication_factor: None takes the broker's default. dry_run: the broker only checks it."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: dict[str, str] = {}
    dry_run: bool = False


class DeleteTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Deletes a topic with its records. typed: its name, unless `dry_run`."""

    topic: str
    dry_run: bool = True
    typed: str = ""


class PurgeTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Deletes the oldest records. before: `all`, an offset or a time, as of `semel topic truncate`. partitions: none
    stands for all.

    keep: partition -> the first offset to keep, instead of `before`: the answer of the dry run. typed: the topic's
    name, unless `dry_run`.
    """

    topic: str
    before: str = ALL
    partitions: list[int] = []
    keep: dict[int, int] | None = None
    dry_run: bool = True
    typed: str = ""


class AlterTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Changes settings of a topic. unset: names of settings that get their defaults."""

    topic: str
    settings: dict[str, str] = {}
    unset: list[str] = []
    dry_run: bool = True


class AddPartitions(msgspec.Struct, forbid_unknown_fields=True):
    """total: the number of partitions after the change."""

    topic: str
    total: int
    dry_run: bool = True


class ProduceRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Writes one record outside of transactions. partition: None lets the key choose. key, value: None is null."""

    topic: str
    partition: int | None = None
    key: str | None = None
    value: str | None = None
    headers: dict[str, str] = {}


async def create_topic(admin: Admin, body: CreateTopic, now_ms: int) -> ChangeAnswer:
    new = NewTopic(body.name, body.partitions or -1, body.replication_factor or -1, topic_configs=body.settings)
    await admin.create_topics([new], validate_only=body.dry_run)
    given = [
        f"{count} {what}"
        for count, what in ((body.partitions, "partitions"), (body.replication_factor, "replicas"))
        if count
    ]
    given += [f"{name}={value}" for name, value in body.settings.items()]
    changes = [f"The topic {body.name} is created, with {', '.join(given) or 'the defaults of the brokers'}."]
    return ChangeAnswer(changes=changes, text=None if body.dry_run else f"{body.name} is created")


async def delete_topic(admin: Admin, body: DeleteTopic, now_ms: int) -> ChangeAnswer:
    topic = await _topic(admin, body.topic)
    if not body.dry_run:
        must_be_typed(body.typed, body.topic)
        await admin.delete_topics([body.topic])
        return ChangeAnswer(changes=[], text=f"{body.topic} is deleted")
    cuts = await plan_truncation(admin, [body.topic], StartPosition(timestamp=LATEST))
    held = sum(each.offsets for each in cuts)
    count = f"{len(topic.partitions):,} partition{'' if len(topic.partitions) == 1 else 's'}"
    changes = [f"The topic {body.topic} is deleted, with {count} and about {held:,} records. They cannot be restored."]
    readers, running = await _readers(admin, body.topic)
    if readers:
        changes.append(f"The committed offsets in it are deleted, of these groups: {', '.join(readers)}.")
    notes = [f"These groups have members that read it now: {', '.join(running)}."] if running else []
    return ChangeAnswer(changes=changes, notes=notes)


async def _readers(admin: Admin, topic: str) -> tuple[list[str], list[str]]:
    """The groups with committed offsets in the topic, and those with members that have partitions of it."""
    names = [each.group_id for each in await admin.list_consumer_groups()]
    groups = await admin.describe_consumer_groups(names) if names else []
    lags = await lag_of(admin, groups) if groups else {}
    committed = [
        name
        for name, rows in lags.items()
        if any(each.at.topic == topic and each.committed is not None for each in rows)
    ]
    running = [
        each.group_id
        for each in groups
        if any(at.topic == topic for member in each.members for at in member.assignment)
    ]
    return sorted(committed), sorted(running)


async def purge_topic(admin: Admin, body: PurgeTopic, now_ms: int) -> ChangeAnswer:
    cuts: list[Truncation] = []
    if not body.dry_run:
        must_be_typed(body.typed, body.topic)
    keep = body.keep
    if body.dry_run or keep is None:
        names = [f"{body.topic}:{each}" for each in sorted(set(body.partitions))] or [body.topic]
        before = StartPosition(timestamp=LATEST) if body.before == ALL else position(body.before, "before", now_ms)
        cuts = [each for each in await plan_truncation(admin, names, before) if each.offsets > 0]
        keep = {each.at.partition: each.keep for each in cuts}
    if body.dry_run:
        changes = [
            f"{body.topic}-{each.at.partition}: offsets {each.start:,} to {each.keep - 1:,} are deleted "
            f"({each.offsets:,})."
            for each in cuts
        ]
        notes = ["Deleted records cannot be restored. The remaining ones keep their offsets."] if cuts else []
        return ChangeAnswer(changes=changes, notes=notes, exact={"keep": keep})
    wanted = {TopicPartition(body.topic, partition): RecordsToDelete(offset) for partition, offset in keep.items()}
    starts = await admin.delete_records(wanted) if wanted else {}
    said = ", ".join(f"{at.topic}-{at.partition} from {first:,}" for at, first in sorted(starts.items()))
    return ChangeAnswer(changes=[], text=f"The topic now begins: {said}" if said else "Nothing was to be deleted")


async def alter_topic(admin: Admin, body: AlterTopic, now_ms: int) -> ChangeAnswer:
    twice = sorted(set(body.settings) & set(body.unset))
    if twice:
        raise ValueError(f"{', '.join(twice)}: both set, and set to the default. Choose one")
    wanted: dict[str, str | None] = {**body.settings, **dict.fromkeys(body.unset)}
    if not wanted:
        raise ValueError("nothing to change: name a setting, such as retention.ms=86400000")
    await _topic(admin, body.topic)
    await _must_exist(admin, body.topic, body.unset)
    before = await _settings(admin, body.topic, list(wanted)) or {}
    await admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, body.topic, wanted)], validate_only=body.dry_run
    )
    changes = [
        f"{name}: {_said(before, name)} becomes {'its default' if value is None else value}."
        for name, value in wanted.items()
        if value is None or name not in before or before[name][0] != value
    ]
    notes = [
        f"{name} has no effect: {text.removeprefix(NO_EFFECT)}"
        for name, (_, text) in before.items()
        if text.startswith(NO_EFFECT) and wanted[name] is not None
    ]
    return ChangeAnswer(
        changes=changes, notes=notes, text=None if body.dry_run else f"{body.topic} has its new settings"
    )


def _said(before: Mapping[str, tuple[str | None, str]], name: str) -> str | None:
    return before[name][0] if name in before else "a value"


async def _settings(admin: Admin, topic: str, names: list[str]) -> dict[str, tuple[str | None, str]] | None:
    """Values and explanations of these settings; None where the principal may not see them."""
    try:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, names)]
        (described,) = await admin.describe_configs(asked, include_documentation=True)
    except TopicAuthorizationFailedError:
        return None
    return {name: (entry.value, entry.documentation or "") for name, entry in described.configs.items()}


async def _must_exist(admin: Admin, topic: str, unset: list[str]) -> None:
    """Raise ValueError for a setting that topics do not have. The broker accepts any name to set to its default."""
    found = await _settings(admin, topic, unset) if unset else {}
    missing = [name for name in unset if found is not None and name not in found]
    if missing:
        raise ValueError(f"topics have no setting {missing[0]!r}: the page of the topic lists them with *defaults too*")


async def add_partitions(admin: Admin, body: AddPartitions, now_ms: int) -> ChangeAnswer:
    had = len((await _topic(admin, body.topic)).partitions)
    await admin.create_partitions({body.topic: NewPartitions(body.total)}, validate_only=body.dry_run)
    return ChangeAnswer(
        changes=[f"{body.topic} has {had:,} partition{'' if had == 1 else 's'}, and gets {body.total - had:,} more."],
        notes=[
            "Partitions cannot be removed again.",
            "Stored records stay in their partitions, so that the records of one key may be in two of them.",
        ],
        text=None if body.dry_run else f"{body.topic} has {body.total:,} partitions",
    )


async def _topic(admin: Admin, name: str) -> TopicMetadata:
    (found,) = await topics_of(admin, [name])
    return found


async def produce_record(producer: Producer, body: ProduceRecord, now_ms: int) -> dict[str, Any]:
    stored = await producer.send_and_wait(
        body.topic,
        None if body.value is None else body.value.encode(),
        key=None if body.key is None else body.key.encode(),
        partition=body.partition,
        headers=[(name, value.encode()) for name, value in body.headers.items()],
    )
    return {"text": f"written to {stored.topic}-{stored.partition} at offset {stored.offset}"}
