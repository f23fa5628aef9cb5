"""Safeguards of topics that are deleted and created again under the same name (KIP-516): client and broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semel._consume.commits import Commits
from semel._group.offsets import Offsets
from semel._subscription.subscription import AssignedPartition, Subscription
from semel.structs import Metadata, TopicPartition
from semel_broker.groups.context import GroupContext
from semel_broker.groups.offsets.model import CommittedOffset
from semel_broker.groups.offsets.store import OffsetStore
from semel_broker.topics.topics import Topic, Topics
from semel_protocol.schema import ZERO_UUID

from sim.ablations.ablation import Seam, safeguard
from sim.ablations.occasions import commits_amid_renewals, late_news
from sim.plan import RunPlan
from sim.workloads import RENEWAL
from sim.workloads.renewal_reader import ASSIGNED


def has_reader_without_group(plan: RunPlan) -> bool:
    """Whether a consumer without a group reads a topic that is created again."""
    return any(client.settings.get("way") == ASSIGNED for workload in plan.workloads for client in workload.clients)


@safeguard(
    "a partition follows its topic id",
    "a consumer does not go on in a new topic at its position in the deleted one",
    RENEWAL,
)
def position_by_name(seam: Seam) -> None:
    def keep_the_position(self: Subscription, metadata: Metadata) -> list[TopicPartition]:
        for partition, state in self.states.items():
            topic_id = metadata.topic_id(partition.topic)
            if topic_id != ZERO_UUID:
                in_hand = state.topic_in_hand
                state.learn_topic(topic_id)
                if in_hand != ZERO_UUID:
                    state.topic_in_hand = in_hand
        return []

    seam.replace(Subscription, "follow", keep_the_position)


class IdsNow(dict[TopicPartition, bytes]):
    """The topic ids of some partitions, looked up at each use."""

    def __init__(self, offsets: Offsets, partitions: Iterable[TopicPartition]) -> None:
        super().__init__((partition, ZERO_UUID) for partition in partitions)
        self._offsets = offsets

    def _now(self) -> dict[TopicPartition, bytes]:
        return {partition: self._offsets._topic_id(partition) for partition in self}

    def items(self) -> Any:
        return self._now().items()

    def values(self) -> Any:
        return self._now().values()


@safeguard(
    "a commit keeps the topic ids of its call",
    "a commit that is tried again does not commit the offsets for a new topic",
    RENEWAL,
    occasion=commits_amid_renewals,
)
def ids_of_each_try(seam: Seam) -> None:
    seam.replace(Offsets, "_topic_ids", lambda self, partitions: IdsNow(self, partitions))


@safeguard(
    "a commit is for the topic of the records in hand",
    "offsets of records of a deleted topic are not committed for its successor",
    RENEWAL,
)
def unchecked_commit(seam: Seam) -> None:
    seam.replace(Commits, "check_topics", lambda self, offsets: None)


@safeguard(
    "a lagging broker costs no position",
    "a consumer that a lagging broker sends back to a deleted topic does not read its records twice",
    RENEWAL,
    shows=has_reader_without_group,
    brokers=3,
    occasion=late_news,
)
def former_states_dropped(seam: Seam) -> None:
    def forget(self: Subscription, state: AssignedPartition) -> None:
        state.buffer.restart(None)

    seam.replace(Subscription, "_put_aside", forget)


def outlived_offsets_stay(seam: Seam) -> None:
    """The deletion of the offsets of deleted topics fails each time."""

    async def fail(self: OffsetStore, only_topic: str | None = None) -> None:
        pass

    seam.replace(OffsetStore, "delete_outlived", fail)


@safeguard(
    "committed offsets belong to a topic id",
    "a group does not begin a new topic at the offset that it had committed for the deleted one",
    RENEWAL,
    given=outlived_offsets_stay,
)
def offsets_by_name(seam: Seam) -> None:
    def any_topic(self: GroupContext, topic: str, committed: CommittedOffset) -> bool:
        return True

    seam.replace(GroupContext, "is_of_current_topic", any_topic)


@safeguard(
    "the id of a deleted topic is refused",
    "a record that was sent to a deleted topic is not stored in its successor",
    RENEWAL,
)
def ids_stand_for_names(seam: Seam) -> None:
    name_of = Topics.name_of
    names: dict[bytes, str] = {}

    def last_name_of(self: Topics, topic_id: bytes) -> str | None:
        name = name_of(self, topic_id)
        if name is not None:
            names[topic_id] = name
        return names.get(topic_id)

    def required(self: Topics, topic_id: bytes) -> Topic:
        return self.required(last_name_of(self, topic_id) or "")

    seam.replace(Topics, "name_of", last_name_of)
    seam.replace(Topics, "required_by_id", required)
