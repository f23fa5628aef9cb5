"""Safeguards of topics: each broker has exactly its own replicas, even while other brokers change topics."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace
from semel_broker.cluster import reassignments
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta, PartitionView
from semel_broker.cluster.records import PartitionState, TopicRecord
from semel_broker.cluster.store import Store
from semel_broker.cluster.writes import catch_up
from semel_broker.security import quota_store
from semel_broker.topics import dynamic_configs, topics
from semel_broker.topics.topics import Topics
from semel_storage.log_directory import LogDirectory

from sim.ablations.ablation import Seam, safeguard
from sim.topic_control import SlowStoreRun, TopicRun

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


@of_topics(
    "records without a topic id are set aside",
    "a topic does not get records of a deleted one, whose topic id a power loss took",
    needless="a power loss has to take the topic id, keep records that no sync covers, and come between the creation "
    "of the next topic and the removal of the directory: no seed of 100 meets it; `tests/storage` has it",
)
def records_taken_over(seam: Seam) -> None:
    seam.replace(LogDirectory, "_has_nothing_durable", lambda self, topic, partition: False)


@of_topics(
    "a directory has one topic",
    "a topic does not take over the records in the directory of another one",
    needless="the files of a deleted topic are in the way only if the disk refuses to rename their directory, which no "
    "simulated disk does; `tests/broker/topics` has one that does",
)
def any_directory(seam: Seam) -> None:
    claim = LogDirectory._claim

    def take_over(self: LogDirectory, topic: str, partition: int, topic_id: bytes) -> None:
        if self.topic_id(topic, partition) is None:
            claim(self, topic, partition, topic_id)

    seam.replace(LogDirectory, "_claim", take_over)


@safeguard(
    "an answer that there is no such thing leaves a mark",
    "a creation that timed out is not carried out behind a newer answer that there is no such topic or quota",
    brokers=3,
    alone=SlowStoreRun,
)
def absence_without_mark(seam: Seam) -> None:
    async def only_known_here(store: Store, feed: Feed, key: str) -> None:
        await catch_up(feed)

    for module in (topics, quota_store, dynamic_configs):
        seam.replace(module, "stays_absent", only_known_here)
