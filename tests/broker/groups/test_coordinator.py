"""The coordinator and the disk: nothing is answered or visible before it is durable, and all of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from broker.groups.group_broker import GroupBroker, breathe
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.groups.classic.group import ClassicMembership, GroupState
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import CONSUMER_OFFSETS


@pytest.fixture
async def group_broker() -> AsyncIterator[GroupBroker]:
    group_broker = await GroupBroker().open()
    await group_broker.commit({9: 9}, group="first")  # creates the topic
    yield group_broker
    await group_broker.close()


async def test_commit_is_answered_and_seen_only_once_durable(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    group_broker.disk.hold_syncs()
    committing = asyncio.create_task(group_broker.commit({0: 2}))
    await breathe()
    assert not committing.done()
    assert await group_broker.offset() == 1
    group_broker.disk.release_syncs()
    await committing
    assert await group_broker.offset() == 2


async def test_acknowledged_commit_survives_a_power_cut_and_a_pending_one_need_not(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    group_broker.disk.hold_syncs()
    pending = asyncio.create_task(group_broker.commit({0: 2}))
    await breathe()
    await group_broker.lose_power()
    assert await group_broker.offset() == 1
    assert pending.cancelled()


async def test_commits_share_a_sync(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 0})
    before = group_broker.disk.syncs
    await asyncio.gather(*(group_broker.commit({partition: 5}) for partition in range(100)))
    assert group_broker.disk.syncs - before <= 2
    assert [await group_broker.offset(partition) for partition in (0, 50, 99)] == [5, 5, 5]


async def test_commits_apply_in_the_order_in_which_they_were_written(group_broker: GroupBroker) -> None:
    group_broker.disk.hold_syncs()
    tasks = [asyncio.create_task(group_broker.commit({0: offset})) for offset in range(10)]
    await breathe()
    group_broker.disk.release_syncs()
    await asyncio.gather(*tasks)
    assert await group_broker.offset() == 9
    await group_broker.restart()
    assert await group_broker.offset() == 9


async def test_given_up_commit_is_applied_all_the_same(group_broker: GroupBroker) -> None:
    group_broker.disk.hold_syncs()
    given_up = asyncio.create_task(group_broker.commit({0: 1}))
    await breathe()
    given_up.cancel()
    group_broker.disk.release_syncs()
    await group_broker.commit({1: 1})
    assert await group_broker.offset() == 1


async def test_assignment_is_handed_out_only_once_durable(group_broker: GroupBroker) -> None:
    joined = await group_broker.join()
    group_broker.disk.hold_syncs()
    syncing = asyncio.create_task(group_broker.sync(joined, [joined.member_id]))
    await breathe()
    assert not syncing.done()
    group_broker.disk.release_syncs()
    assert (await syncing).assignment == joined.member_id.encode()


async def test_takeover_of_an_instance_is_answered_only_once_durable(group_broker: GroupBroker) -> None:
    first = await group_broker.join(instance="i")
    await group_broker.sync(first, [first.member_id])
    group_broker.disk.hold_syncs()
    taking = asyncio.create_task(group_broker.join(instance="i"))
    await breathe()
    assert not taking.done()
    await group_broker.ask.heartbeat("g", 1, first.member_id, "i")
    group_broker.disk.release_syncs()
    second = await taking
    await group_broker.lose_power()
    await group_broker.ask.heartbeat("g", 1, second.member_id, "i")
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        await group_broker.ask.heartbeat("g", 1, first.member_id, "i")


async def test_leave_is_answered_only_once_durable(group_broker: GroupBroker) -> None:
    joined = await group_broker.enter()
    group_broker.disk.hold_syncs()
    leaving = asyncio.create_task(group_broker.ask.leave("g", [(joined.member_id, None)]))
    await breathe()
    assert not leaving.done()
    group_broker.disk.release_syncs()
    assert await leaving == [ErrorCode.NONE]
    await group_broker.lose_power()
    group = await group_broker.ask.group("g")
    assert group is not None
    assert group.membership.state_name == GroupState.EMPTY.value


async def test_member_that_joins_while_its_group_is_deleted_keeps_the_group(group_broker: GroupBroker) -> None:
    joined = await group_broker.enter()
    await group_broker.commit({0: 1}, member_id=joined.member_id, generation=1)
    await group_broker.ask.leave("g", [(joined.member_id, None)])
    group_broker.disk.hold_syncs()
    deleting = asyncio.create_task(group_broker.ask.delete_group("g"))
    await breathe()
    again = await group_broker.join()
    group_broker.disk.release_syncs()
    await deleting
    await group_broker.sync(again, [again.member_id])
    assert await group_broker.offset() == -1
    live = await group_broker.everything()
    await group_broker.lose_power()
    assert await group_broker.everything() == live


async def test_generation_that_came_and_went_while_its_group_is_deleted_is_kept(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    group_broker.disk.hold_syncs()
    deleting = asyncio.create_task(group_broker.ask.delete_group("g"))
    await breathe()
    joined = await group_broker.join()
    leaving = asyncio.create_task(group_broker.ask.leave("g", [(joined.member_id, None)]))
    await breathe()
    group_broker.disk.release_syncs()
    await asyncio.gather(deleting, leaving)
    live = await group_broker.everything()
    await group_broker.lose_power()
    assert await group_broker.everything() == live


async def test_looking_at_unknown_groups_creates_nothing() -> None:
    group_broker = await GroupBroker().open()
    for asked in (
        group_broker.ask.delete_group("g"),
        group_broker.ask.delete_offsets("g", []),
        group_broker.ask.heartbeat("g", 1, "m", None),
    ):
        with pytest.raises(KafkaError):
            await asked
    assert group_broker.topics.get(CONSUMER_OFFSETS) is None
    await group_broker.close()


async def test_commit_under_way_is_forgotten_with_its_topic(group_broker: GroupBroker) -> None:
    group_broker.disk.hold_syncs()
    committing = asyncio.create_task(group_broker.commit({0: 1}))
    await breathe()
    forgetting = asyncio.create_task(group_broker.delete_topic())
    await breathe()
    group_broker.disk.release_syncs()
    await asyncio.gather(committing, forgetting)
    assert await group_broker.offset() == -1
    await group_broker.restart()
    assert await group_broker.offset() == -1


async def test_requests_wait_until_the_groups_are_read(group_broker: GroupBroker) -> None:
    for offset in range(50):
        await group_broker.commit({0: offset})
    await group_broker.close()
    await group_broker.open(wait=False)
    assert await group_broker.offset() == 49


async def test_members_have_a_whole_session_after_a_restart(group_broker: GroupBroker) -> None:
    joined = await group_broker.enter()
    group_broker.monotonic_s += 9.9
    await group_broker.restart()
    group = await group_broker.ask.group("g")
    assert group is not None
    classic = group.of(ClassicMembership)
    assert classic is not None
    assert classic.members[joined.member_id].expires_ms == int(group_broker.monotonic_s * 1000) + 10_000


async def test_unreadable_groups_are_refused_not_forgotten(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    partition = group_broker.topics.partition(CONSUMER_OFFSETS, coordinator_partition("g", 50))
    broken = bytearray(build_batch([Record(0, 0, b"\0\1\xff", b"what?")]))
    partition.append(broken, header=read_header(broken))
    await group_broker.close()
    await group_broker.open(wait=False)
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        await group_broker.offset()
    assert group_broker.log.of("groups_not_loaded")


async def test_records_of_later_releases_are_skipped(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    partition = group_broker.topics.partition(CONSUMER_OFFSETS, coordinator_partition("g", 50))
    unknown = bytearray(build_batch([Record(0, 0, b"\0\11anything", b"at all")]))
    partition.append(unknown, header=read_header(unknown))
    await group_broker.restart()
    assert await group_broker.offset() == 1


async def test_closed_coordinator_sends_clients_elsewhere() -> None:
    group_broker = await GroupBroker().open()
    first = await group_broker.enter()
    waiting = asyncio.create_task(group_broker.join())
    await breathe()
    await group_broker.groups.close()
    for late in (
        waiting,
        group_broker.join(),
        group_broker.commit({0: 1}),
        group_broker.ask.leave("g", [(first.member_id, None)]),
    ):
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await late
    await group_broker.close()


async def test_expired_groups_leave_nothing_behind() -> None:
    group_broker = await GroupBroker(offsets_retention_check_interval_ms="5", offsets_retention_minutes="1").open()
    joined = await group_broker.enter()
    await group_broker.commit({0: 1}, member_id=joined.member_id, generation=1)
    await group_broker.ask.leave("g", [(joined.member_id, None)])
    group_broker.wall_ms += 59_999
    await asyncio.sleep(0.05)
    assert await group_broker.offset() == 1
    group_broker.wall_ms += 1
    async with asyncio.timeout(10):
        while await group_broker.ask.group("g") is not None:
            await asyncio.sleep(0.005)
    await group_broker.restart()
    assert await group_broker.everything() == {}
    await group_broker.close()


# --- any history ---

COMMIT, DELETE_OFFSET, DELETE_GROUP, ENTER, LEAVE, BREATHE, HOLD, RELEASE, POWER_CUT = range(9)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([COMMIT] * 6 + [DELETE_OFFSET, DELETE_GROUP, ENTER, LEAVE, BREATHE, BREATHE, HOLD, RELEASE]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 1),
    ),
    max_size=40,
)


class ConcurrentSteps:
    """Steps that run concurrently, each in a task. The outcomes are collected at the end."""

    def __init__(self, group_broker: GroupBroker) -> None:
        self.group_broker = group_broker
        self.tasks: list[asyncio.Task[object]] = []
        self.members: dict[str, str] = {}

    async def step(self, what: int, group: str, partition: int, offset: int) -> None:
        group_broker = self.group_broker
        if what == COMMIT:
            self.start(
                group_broker.commit(
                    {partition: offset}, group, self.members.get(group, ""), await self.generation(group)
                )
            )
        elif what == DELETE_OFFSET:
            self.start(group_broker.ask.delete_offsets(group, [("t", partition)]))
        elif what == DELETE_GROUP:
            self.start(group_broker.ask.delete_group(group))
        elif what == ENTER and group not in self.members:
            joined = await group_broker.join(group=group)
            self.members[group] = joined.member_id
            self.start(group_broker.sync(joined, [joined.member_id], group))
        elif what == LEAVE and group in self.members:
            self.start(group_broker.ask.leave(group, [(self.members.pop(group), None)]))
        elif what == HOLD and group_broker.disk.held is None:
            group_broker.disk.hold_syncs()
        elif what == RELEASE and group_broker.disk.held is not None:
            group_broker.disk.release_syncs()
        elif what == BREATHE:
            await breathe()

    async def generation(self, group: str) -> int:
        found = await self.group_broker.ask.group(group)
        return found.membership.generation_id if found is not None and group in self.members else -1

    def start(self, work: object) -> None:
        self.tasks.append(asyncio.ensure_future(work))  # type: ignore[arg-type]

    async def settle(self) -> None:
        if self.group_broker.disk.held is not None:
            self.group_broker.disk.release_syncs()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, KafkaError), outcome


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_replay_finds_the_live_state(steps: list[tuple[int, str, int]]) -> None:
    async def run() -> None:
        group_broker = await GroupBroker().open()
        await group_broker.commit({9: 9}, group="first")
        history = ConcurrentSteps(group_broker)
        for offset, (what, group, partition) in enumerate(steps):
            await history.step(what, group, partition, offset)
        await history.settle()
        live = await group_broker.everything()
        await group_broker.lose_power()
        assert await group_broker.everything() == live
        await group_broker.close()

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([COMMIT] * 4 + [BREATHE, HOLD, RELEASE, POWER_CUT]), st.integers(0, 1))),
    st.integers(),
)
def test_committed_offset_never_decreases_by_itself(steps: list[tuple[int, int]], seed: int) -> None:
    """The clients only raise offsets, so readers must never see a lower one.

    A power loss must not remove an acknowledged one.
    """

    async def run() -> None:
        group_broker = await GroupBroker().open()
        await group_broker.commit({9: 9}, group="first")
        rng = Random(seed)
        acknowledged, seen = {0: -1, 1: -1}, {0: -1, 1: -1}

        async def commit(partition: int, offset: int) -> None:
            await group_broker.commit({partition: offset})
            acknowledged[partition] = max(acknowledged[partition], offset)

        tasks: list[asyncio.Task[None]] = []
        for offset, (what, partition) in enumerate([*steps, (POWER_CUT, 0)]):
            if what == COMMIT:
                tasks.append(asyncio.create_task(commit(partition, offset)))
                await asyncio.sleep(0)
            elif what == POWER_CUT:
                await group_broker.lose_power(rng)
            elif what == HOLD and group_broker.disk.held is None:
                group_broker.disk.hold_syncs()
            elif what == RELEASE and group_broker.disk.held is not None:
                group_broker.disk.release_syncs()
            else:
                await breathe()
            for each in seen:
                now = await group_broker.offset(each)
                assert now >= seen[each]
                assert now >= acknowledged[each]
                seen[each] = now
        await group_broker.close()

    asyncio.run(run())


# --- the log -----------------------------------------------------------------------------------------------------


async def test_the_log_says_which_member_caused_a_generation(group_broker: GroupBroker) -> None:
    joined = await group_broker.join()
    await group_broker.sync(joined, [joined.member_id])
    of_member = {"member": joined.member_id, "client_id": "c", "client_host": "/h"}
    stored = group_broker.log.of("group_generation_stored")[-1]
    assert stored == {
        "group": "g",
        "generation": 1,
        "members": 1,
        "state": "Stable",
        "cause": "joined",
        **of_member,
    }
    await group_broker.ask.leave("g", [(joined.member_id, None)])
    await breathe()
    left = group_broker.log.of("group_generation_stored")[-1]
    assert (left["state"], left["cause"]) == ("Empty", "left")
    assert left.items() >= of_member.items()
