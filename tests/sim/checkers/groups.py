"""lost-group-offset, double-assignment, zombie-commit: what a group has committed stays, each partition has one member,
and only that one commits."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.story import Outcome, Story
from sim.history import NO_TXN, Assigned, Place, Revoked


class Setting(msgspec.Struct, frozen=True):
    """An offset that was committed at some moment between two. Without anybody's doing there is none."""

    offset: int | None
    since_ms: float
    until_ms: float


NOTHING = Setting(None, -inf, -inf)


def lost_group_offset(story: Story) -> Iterator[Anomaly]:
    """A committed offset was seen that was overwritten before: by a commit acknowledged before anybody looked."""
    settings = _settings(story)
    found: dict[str, None] = {}
    for group, place, offset, since_ms, until_ms in _sights(story):
        there = [NOTHING, *settings.get((group, place), [])]
        definite = max((each.since_ms for each in there if each.until_ms < since_ms), default=-inf)
        if not any(each.offset == offset and each.since_ms <= until_ms and each.until_ms >= definite for each in there):
            latest = max((each for each in there if each.until_ms < since_ms), key=lambda each: each.since_ms)
            found[
                f"group {group} had {offset} for {place[0]}-{place[1]} at {until_ms:.0f} ms, where {latest.offset} was "
                f"committed at {latest.until_ms:.0f} ms"
            ] = None
    if found:
        yield Anomaly("lost-group-offset", few(found))


def _settings(story: Story) -> dict[tuple[str, Place], list[Setting]]:
    """Every commit that has taken effect, or may have."""
    settings: dict[tuple[str, Place], list[Setting]] = {}
    for commit in story.offset_commits.values():
        since_ms, until_ms = commit.asked.at_ms, commit.ended_ms
        if commit.asked.txn != NO_TXN:
            txn = story.txns[commit.asked.txn]
            since_ms, until_ms = txn.committing_ms, txn.ended_ms
            if txn.outcome is Outcome.ABORTED:
                continue
        if commit.is_refused:
            continue
        for topic, partition, offset in commit.asked.offsets:
            settings.setdefault((commit.asked.group, (topic, partition)), []).append(
                Setting(offset, since_ms, until_ms)
            )
    return settings


def _sights(story: Story) -> Iterator[tuple[str, Place, int | None, float, float]]:
    """Group, place, what it had there, and between which times somebody asked."""
    for seen in story.offsets_seen:
        for topic, partition, offset in seen.offsets:
            yield seen.group, (topic, partition), offset, seen.since_ms, seen.at_ms
    places = {
        (commit.asked.group, (topic, partition)): None
        for commit in story.offset_commits.values()
        for topic, partition, _ in commit.asked.offsets
    }
    for group, place in places:
        if group in story.final.groups:
            yield group, place, story.final.groups[group].get(place), inf, inf


def double_assignment(story: Story) -> Iterator[Anomaly]:
    """Two members of one generation were given the same partition. A static member may come back as itself."""
    found = []
    mine: dict[str, dict[Place, None]] = {}
    owners: dict[tuple[str, int, Place], str] = {}
    for event in story.assigned:
        owned = mine.setdefault(event.client, {})
        if isinstance(event, Revoked):
            for place in event.places:
                owned.pop(place, None)
            continue
        owned.update(dict.fromkeys(event.places))
        found += list(_claims(story, event, owned, owners))
    if found:
        yield Anomaly("double-assignment", few(found))


def _claims(
    story: Story, event: Assigned, owned: dict[Place, None], owners: dict[tuple[str, int, Place], str]
) -> Iterator[str]:
    consumer = story.consumers.get(event.client)
    if consumer is None or event.generation < 0:
        return
    for place in owned:
        name = event.client.partition("#")[0]
        other = owners.setdefault((consumer.group, event.generation, place), name)
        if other != name:
            yield f"generation {event.generation} of {consumer.group} has {place[0]}-{place[1]} with {other} and {name}"


def zombie_commit(story: Story) -> Iterator[Anomaly]:
    """A member's commit was accepted for a partition that another member had been given before it was asked for."""
    given: dict[tuple[str, Place], list[Assigned]] = {}
    for event in story.assigned:
        consumer = story.consumers.get(event.client)
        if isinstance(event, Assigned) and consumer is not None and event.generation >= 0:
            for place in event.places:
                given.setdefault((consumer.group, place), []).append(event)
    found = []
    for commit in story.offset_commits.values():
        asked = commit.asked
        if asked.txn != NO_TXN or commit.ended_ms == inf or asked.client not in story.consumers:
            continue
        for topic, partition, _ in asked.offsets:
            earlier = [each for each in given.get((asked.group, (topic, partition)), ()) if each.at_ms < asked.at_ms]
            if earlier and earlier[-1].client != asked.client:
                found.append(
                    f"{asked.client} committed {topic}-{partition} for group {asked.group} at {asked.at_ms:.0f} ms; "
                    f"{earlier[-1].client} had it since {earlier[-1].at_ms:.0f} ms, generation {earlier[-1].generation}"
                )
    if found:
        yield Anomaly("zombie-commit", few(found))
