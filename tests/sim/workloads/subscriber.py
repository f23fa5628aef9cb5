"""The role of a member of the consumer protocol: polls, commits, leaves, dies, comes back, changes its subscription.

It also commits with its epoch from before a change, which the group has to refuse.
"""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
from semel_protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeResponseGroup

from sim.events import Place
from sim.workloads.base import ClientContext
from sim.workloads.epoch_member import LEAVE, LEAVE_FOR_A_WHILE, EpochMember, EpochMemberSettings
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.wires import NoAnswerError

ROLE = "subscriber"
LOOK_S = 0.2
SETTLED_WITHIN_MS = 20_000
"""Time limit in addition to the timeouts of the members."""


def draw_ops(rng: Random, topics: list[str], *, count: int, mean_ms: float) -> list[Op]:
    """Operations poll; commit; look: read committed offsets; stale: commit as before; renew: leave, or without `says`
    die, and come back as another member; subscribe: to these `topics`."""
    ops = []
    for _ in range(count):
        kind = rng.choices(("poll", "commit", "look", "stale", "renew", "subscribe"), (16, 8, 2, 3, 2, 1))[0]
        args: dict[str, object] = {}
        if kind == "renew":
            args = {"says": rng.random() < 0.6}
        elif kind == "subscribe":
            args = {"topics": rng.choice((topics, topics, topics[:1]))}
        ops.append(Op(kind=kind, pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


async def take_part(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role, in the first group of the plan."""
    given = msgspec.convert(client.settings, EpochMemberSettings)
    all_topics = [topic.name for topic in plan.topics]

    async def opened() -> EpochMember:
        mine = EpochMember(context, client.name, plan.groups[0], all_topics, all_topics, given)
        await mine.start()
        return mine

    mine = await opened()
    while not context.fault_free.has_begun and (op := script.next()) is not None:
        await asyncio.sleep(op.pause_ms / 1000)
        if op.kind == "renew":
            await mine.stop(_goodbye(given) if op.args["says"] else None)
            mine = await opened()
            continue
        try:
            await _do(mine, op)
        except NoAnswerError:
            pass  # the outcome is unknown
    await _until_fault_free(context, client, mine, keeps_beating=given.keeps_beating)
    await _come_to_rest(context, plan, client, mine)
    await mine.stop(LEAVE if given.leaves else None)


def _goodbye(given: EpochMemberSettings) -> int:
    return LEAVE_FOR_A_WHILE if given.instance_id is not None else LEAVE


async def _do(mine: EpochMember, op: Op) -> None:
    """Raise NoAnswerError."""
    match op.kind:
        case "poll":
            await mine.poll()
        case "commit":
            await mine.commit()
        case "look":
            await mine.look()
        case "stale":
            await mine.commit_as_before()
        case "subscribe" if mine.given.regex is None:
            mine.subscribe(list(op.args["topics"]))


async def _until_fault_free(
    context: ClientContext, client: ClientPlan, mine: EpochMember, *, keeps_beating: bool
) -> None:
    """Wait until all faults are over: with heartbeats, or in a pause of the whole process."""
    context.fault_free.waiting[client.name] = None
    while not context.fault_free.has_begun:
        if not keeps_beating:
            context.pause_process()
        await asyncio.sleep(LOOK_S if keeps_beating else 0)


async def _come_to_rest(context: ClientContext, plan: WorkloadPlan, client: ClientPlan, mine: EpochMember) -> None:
    """Read, commit and heartbeat until the group is settled and all its members know it. A group that does not settle
    in time is recorded."""
    given, fault_free = mine.given, context.fault_free
    needs_ms = 2 * given.request_timeout_ms + 3 * given.session_timeout_ms + 2 * given.rebalance_timeout_ms
    deadline_ms = context.history.now_ms() + needs_ms + SETTLED_WITHIN_MS
    others = {each.name for each in plan.clients if each.role == ROLE}
    while not others <= fault_free.settled.keys():
        await asyncio.sleep(LOOK_S)
        try:
            await mine.drain()
            await mine.commit()
            await mine.fetcher.look()
            wants = unsettled(mine, await mine.describe(), plan, len(others))
        except NoAnswerError as error:
            wants = [str(error)]
        if not wants or client.name in fault_free.settled:
            fault_free.settled[client.name] = None
        elif context.history.now_ms() > deadline_ms:
            fault_free.stalled.append(f"{mine.group} does not settle for {client.name}: {'; '.join(wants)}")
            fault_free.settled[client.name] = None
            return


def unsettled(
    mine: EpochMember, group: ConsumerGroupDescribeResponseGroup, plan: WorkloadPlan, member_count: int
) -> list[str]:
    """The differences between the current state of a group and a settled one, as one of its members sees it.

    A group is settled when each member has its target assignment at the group epoch, each partition has one member, and
    this member has read and committed all records of its partitions.
    """
    if group.error_code:
        return [f"it cannot be described: error {group.error_code}"]
    wants = []
    if group.group_state != "Stable" or group.assignment_epoch != group.group_epoch:
        wants.append(f"it is {group.group_state} at epoch {group.group_epoch}, assigned at {group.assignment_epoch}")
    if len(group.members) != member_count:
        wants.append(f"it has the members {[each.member_id for each in group.members]}, not {member_count}")
    owners: dict[Place, list[str]] = {}
    read: set[Place] = set()
    for each in group.members:
        has, target = (
            {(row.topic_name, index) for row in part.topic_partitions for index in row.partitions}
            for part in (each.assignment, each.target_assignment)
        )
        if each.member_epoch != group.group_epoch or has != target:
            wants.append(f"{each.member_id} has {sorted(has)} of {sorted(target)} at epoch {each.member_epoch}")
        for place in has:
            owners.setdefault(place, []).append(each.member_id)
        counts = mine.fetcher.counts
        all_names = [name for name in counts if name.startswith(plan.prefix)]
        names = all_names if each.subscribed_topic_regex else each.subscribed_topic_names
        read |= {(name, index) for name in names for index in range(counts.get(name, 0))}
        if each.member_id == mine.member_id and (each.member_epoch, has) != (mine.epoch, set(mine.owned)):
            wants.append(f"{mine.member_id} takes itself to be at epoch {mine.epoch} with {sorted(mine.owned)}")
    wants += [f"{place} has the members {names}" for place, names in sorted(owners.items()) if len(names) != 1]
    if owners.keys() != read:
        wants.append(f"{sorted(owners)} have a member, of {sorted(read)}")
    if mine.member_id not in [each.member_id for each in group.members]:
        wants.append(f"{mine.member_id} is no member")
    wants += [f"{place} is not read to its end" for place in mine.owned if not _is_read(mine, place)]
    return wants


def _is_read(mine: EpochMember, place: Place) -> bool:
    at = mine.positions.get(place, -1)
    is_committed = mine.committed.get(place) == at or place[0] not in mine.all_topics
    return at >= mine.ends.get(place, 1 << 62) and is_committed
