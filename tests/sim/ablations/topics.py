"""Safeguards of topics: each broker has exactly its own replicas, even while other brokers change topics."""

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


@of_topics(
    "removals by topic id", "a topic that was created and deleted between two updates of the image is removed, too"
)
def by_name(seam: Seam) -> None:
    start = Topics._start_removal

    def known(self: Topics, record: TopicRecord) -> None:
        assert record.name in self._by_name, record.name
        start(self, record)

    seam.replace(Topics, "_start_removal", known)


@of_topics(
    "directories are made free first", "a new replica does not find the files of a deleted topic with the same name"
)
def at_once(seam: Seam) -> None:
    seam.replace(Topics, "_is_being_removed", lambda self, name, index: False)


@of_topics(
    "notes of deletions are followed",
    "deletion notes in the store are removed even for topics that this broker never had",
)
def unnoted(seam: Seam) -> None:
    follow = Topics._follow

    def without_notes(self: Topics, delta: ImageDelta) -> None:
        follow(self, replace(delta, deletions={}))

    seam.replace(Topics, "_follow", without_notes)


@of_topics(
    "the new leader of a reassignment is registered", "a reassignment ends only if its new leader is still registered"
)
def without_registration(seam: Seam) -> None:
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
