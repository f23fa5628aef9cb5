"""Safeguards of topics: every broker has what is its own, whatever the others do to topics meanwhile."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace
from semel_broker.cluster import reassignments
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.image import ImageDelta, PartitionView
from semel_broker.cluster.records import PartitionState, TopicRecord
from semel_broker.topics.topics import Topics

from sim.ablations.ablation import Seam, safeguard
from sim.topic_control import TopicRun

of_topics = partial(safeguard, brokers=3, alone=TopicRun)


@of_topics("removals by topic id", "topics that came and went between two looks at the store hide nothing")
def by_name(seam: Seam) -> None:
    start = Topics._start_removal

    def known(self: Topics, record: TopicRecord) -> None:
        assert record.name in self._by_name, record.name
        start(self, record)

    seam.replace(Topics, "_start_removal", known)


@of_topics("directories are made free first", "a replica does not meet the files of what was there before")
def at_once(seam: Seam) -> None:
    seam.replace(Topics, "_is_being_removed", lambda self, name, index: False)


@of_topics("notes of deletions are followed", "of topics that nobody has seen here nothing is left in the store")
def unnoted(seam: Seam) -> None:
    follow = Topics._follow

    def without_notes(self: Topics, delta: ImageDelta) -> None:
        follow(self, replace(delta, deletions={}))

    seam.replace(Topics, "_follow", without_notes)


@of_topics("who comes to lead by a move is there still", "a decision rests on what it was made from")
def whoever(seam: Seam) -> None:
    end = reassignments._Edit.end

    def unconditionally(
        self: reassignments._Edit,
        view: PartitionView,
        replicas: list[int],
        state: PartitionState,
        brokers: BrokerStates,
    ) -> None:
        end(self, view, replicas, state, brokers)
        self._expects = [each for each in self._expects if not each.key.startswith("brokers/")]

    seam.replace(reassignments._Edit, "end", unconditionally)
