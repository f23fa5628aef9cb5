"""Checks during a run that no value of a consumer group goes back at its coordinators (KIP-848).

The state of a group in the memory of its coordinator is durable, so the next coordinator has it too, or a later one. At
rest the state equals the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from semel_broker.coordination.shards import Stage
from semel_broker.groups.classic.group import ClassicMembership
from semel_broker.groups.consumer.model import LEFT_STATIC, ConsumerGroup, Current, Member
from semel_broker.groups.group import Group
from semel_broker.groups.replay import GroupReplay
from semel_broker.groups.shard import GroupShard
from semel_broker.node import Node

from sim.broker import SimBroker
from sim.group_records import Eras

EVERY_NS = 10_000_000


class SeenGroup(msgspec.Struct):
    """A group as its coordinator had it. `shard`: the coordinator. `beginnings`: see `Eras`; None: not known.

    `epoch`: of a classic group its generation.
    """

    shard: Any
    beginnings: int | None
    epoch: int
    assignment_epoch: int = 0
    members: dict[str, Member] = {}
    instances: dict[str, str] = {}
    currents: dict[str, Current] = {}
    is_classic: bool = False


class Coordinators:
    """`found`: one finding for each group. `eras`: of their memberships. `brokers` by host name."""

    def __init__(self, brokers: Mapping[str, SimBroker]) -> None:
        self.found: dict[str, str] = {}
        self.eras = Eras()
        self._brokers = brokers
        self._seen: dict[str, SeenGroup] = {}
        self._leader_epochs: dict[int, int] = {}
        """By partition of __consumer_offsets: the newest epoch of a leader that was seen as coordinator."""
        self.due_ns = 0

    def look(self, now_ns: int) -> None:
        """Check all coordinators. To be called again at `due_ns`: every 10 ms."""
        self.due_ns = now_ns + EVERY_NS
        nodes = [broker.node for broker in self._brokers.values() if broker.node is not None and broker.host.is_running]
        for shard in ready_shards(nodes):
            if shard.partition.leader_epoch < self._leader_epochs.get(shard.index, -1):
                continue  # a former coordinator that does not know yet that it is deposed
            self._leader_epochs[shard.index] = shard.partition.leader_epoch
            self.eras.read(shard.index, shard.partition.open(), shard.partition.high_watermark)
            here = consumer_groups(shard.groups)
            self._look_at_classic(shard)
            for group_id, before in self._seen.items():
                is_gone = before.shard is not shard and before.shard.index == shard.index and group_id not in here
                if is_gone and not before.is_classic and self._goes_on(group_id, before):
                    self.found.setdefault(group_id, f"{group_id} had epoch {before.epoch}, and is gone")
            for group_id, group in here.items():
                if group.is_blank:
                    continue
                known = self._seen.get(group_id)
                if known is not None and self._goes_on(group_id, known):
                    for what in went_back(known, group):
                        how = "on its coordinator" if known.shard is shard else "on the next coordinator"
                        self.found.setdefault(group_id, f"{now_ns / 1e9:.3f} {group_id} {how}: {what}")
                self._seen[group_id] = SeenGroup(
                    shard,
                    self.eras.beginnings(group_id),
                    group.epoch,
                    group.assignment_epoch,
                    dict(group.members),
                    dict(group.instances),
                    dict(group.currents),
                )

    def _look_at_classic(self, shard: GroupShard) -> None:
        """Groups that have changed to the classic protocol: the generation continues the epoch. A group whose members
        have never been in a generation, or that has none, may begin anew in the other protocol."""
        for group_id, before in [*self._seen.items()]:
            found = shard.groups.get(group_id)
            group = found.of(ClassicMembership) if found is not None else None
            if group is None or before.shard.index != shard.index:
                continue
            if all(member.is_new for member in group.members.values()):
                del self._seen[group_id]
                continue
            if group.generation_id < before.epoch and before.members and self._goes_on(group_id, before):
                what = f"{group_id} had epoch {before.epoch}, and has generation {group.generation_id}"
                self.found.setdefault(group_id, what)
            self._seen[group_id] = SeenGroup(
                shard, self.eras.beginnings(group_id), group.generation_id, is_classic=True
            )

    def _goes_on(self, group_id: str, before: SeenGroup) -> bool:
        """Whether the group has not begun anew since it was seen."""
        return before.beginnings is not None and before.beginnings == self.eras.beginnings(group_id)


def went_back(before: SeenGroup, now: ConsumerGroup) -> Iterator[str]:
    """The values of a group that went back."""
    if now.epoch < before.epoch:
        yield f"its epoch was {before.epoch}, and is {now.epoch}"
    if now.assignment_epoch < before.assignment_epoch:
        yield f"its assignment epoch was {before.assignment_epoch}, and is {now.assignment_epoch}"
    for member_id, member in before.members.items():
        if member_id not in now.members:
            is_replaced = now.instances.get(member.instance_id or "") is not None
            if now.epoch == before.epoch and not is_replaced:
                yield f"{member_id} is no member any more at the same epoch {now.epoch}"
            continue
        was, current = before.currents.get(member_id, Current()), now.current(member_id)
        if LEFT_STATIC not in (was.epoch, current.epoch) and current.epoch < was.epoch:
            yield f"{member_id} was at epoch {was.epoch}, and is at {current.epoch}"


def consumer_groups(groups: Mapping[str, Group]) -> dict[str, ConsumerGroup]:
    """Those of the consumer protocol."""
    found = {group_id: group.of(ConsumerGroup) for group_id, group in groups.items()}
    return {group_id: group for group_id, group in found.items() if group is not None}


def ready_shards(nodes: Sequence[Node]) -> Iterator[GroupShard]:
    """The coordinators that answer."""
    for node in nodes:
        for shard in node.broker.groups.shards.here():
            if shard.stage is Stage.READY and shard.is_ready and shard.partition.is_open:
                yield shard


def unfaithful(nodes: Sequence[Node]) -> Iterator[str]:
    """The differences between the groups in memory and their records, on coordinators at rest."""
    for shard in ready_shards(nodes):
        if shard.partition.high_watermark < shard.partition.end_offset:
            continue
        replay = GroupReplay()
        for segment in shard.partition.open().segments:
            for _, header, batch in segment.scan():
                replay.feed(shard.index, header, batch)
        stored, here = (
            {group_id: group for group_id, group in consumer_groups(groups).items() if not group.is_blank}
            for groups in (replay.groups(shard.host.now()), shard.groups)
        )
        for group_id in {**stored, **here}:
            one, other = here.get(group_id), stored.get(group_id)
            if one is None or other is None:
                yield f"{group_id} is {'only in records' if one is None else 'in no record'}"
                continue
            for what in (
                "epoch",
                "assignment_epoch",
                "topics",
                "members",
                "instances",
                "targets",
                "currents",
                "owners",
            ):
                if getattr(one, what) != getattr(other, what):
                    yield f"{group_id} has {what} {getattr(one, what)}, its records {getattr(other, what)}"
