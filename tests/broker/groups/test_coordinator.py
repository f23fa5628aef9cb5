"""What the coordinator owes the disk: nothing is answered or seen before it is durable, and everything after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from broker.groups.desk import Desk, breathe
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.groups.group import GroupState
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import CONSUMER_OFFSETS


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = await Desk().open()
    await desk.commit({9: 9}, group="first")  # creates the topic
    yield desk
    await desk.close()


async def test_commit_is_answered_and_seen_only_once_durable(desk: Desk) -> None:
    await desk.commit({0: 1})
    desk.disk.hold_syncs()
    committing = asyncio.create_task(desk.commit({0: 2}))
    await breathe()
    assert not committing.done()
    assert await desk.offset() == 1
    desk.disk.release_syncs()
    await committing
    assert await desk.offset() == 2


async def test_acknowledged_commit_survives_a_power_cut_and_a_pending_one_need_not(desk: Desk) -> None:
    await desk.commit({0: 1})
    desk.disk.hold_syncs()
    pending = asyncio.create_task(desk.commit({0: 2}))
    await breathe()
    await desk.lose_power()
    assert await desk.offset() == 1
    assert pending.cancelled()


async def test_commits_share_a_sync(desk: Desk) -> None:
    await desk.commit({0: 0})
    before = desk.disk.syncs
    await asyncio.gather(*(desk.commit({partition: 5}) for partition in range(100)))
    assert desk.disk.syncs - before <= 2
    assert [await desk.offset(partition) for partition in (0, 50, 99)] == [5, 5, 5]


async def test_commits_apply_in_the_order_in_which_they_were_written(desk: Desk) -> None:
    desk.disk.hold_syncs()
    tasks = [asyncio.create_task(desk.commit({0: offset})) for offset in range(10)]
    await breathe()
    desk.disk.release_syncs()
    await asyncio.gather(*tasks)
    assert await desk.offset() == 9
    await desk.restart()
    assert await desk.offset() == 9


async def test_given_up_commit_is_applied_all_the_same(desk: Desk) -> None:
    desk.disk.hold_syncs()
    given_up = asyncio.create_task(desk.commit({0: 1}))
    await breathe()
    given_up.cancel()
    desk.disk.release_syncs()
    await desk.commit({1: 1})
    assert await desk.offset() == 1


async def test_assignment_is_handed_out_only_once_durable(desk: Desk) -> None:
    joined = await desk.join()
    desk.disk.hold_syncs()
    syncing = asyncio.create_task(desk.sync(joined, [joined.member_id]))
    await breathe()
    assert not syncing.done()
    desk.disk.release_syncs()
    assert (await syncing).assignment == joined.member_id.encode()


async def test_takeover_of_an_instance_is_answered_only_once_durable(desk: Desk) -> None:
    first = await desk.join(instance="i")
    await desk.sync(first, [first.member_id])
    desk.disk.hold_syncs()
    taking = asyncio.create_task(desk.join(instance="i"))
    await breathe()
    assert not taking.done()
    await desk.ask.heartbeat("g", 1, first.member_id, "i")
    desk.disk.release_syncs()
    second = await taking
    await desk.lose_power()
    await desk.ask.heartbeat("g", 1, second.member_id, "i")
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        await desk.ask.heartbeat("g", 1, first.member_id, "i")


async def test_leave_is_answered_only_once_durable(desk: Desk) -> None:
    joined = await desk.enter()
    desk.disk.hold_syncs()
    leaving = asyncio.create_task(desk.ask.leave("g", [(joined.member_id, None)]))
    await breathe()
    assert not leaving.done()
    desk.disk.release_syncs()
    assert await leaving == [ErrorCode.NONE]
    await desk.lose_power()
    group = await desk.ask.group("g")
    assert group is not None
    assert group.state is GroupState.EMPTY


async def test_member_that_joins_while_its_group_is_deleted_keeps_the_group(desk: Desk) -> None:
    joined = await desk.enter()
    await desk.commit({0: 1}, member_id=joined.member_id, generation=1)
    await desk.ask.leave("g", [(joined.member_id, None)])
    desk.disk.hold_syncs()
    deleting = asyncio.create_task(desk.ask.delete_group("g"))
    await breathe()
    again = await desk.join()
    desk.disk.release_syncs()
    await deleting
    await desk.sync(again, [again.member_id])
    assert await desk.offset() == -1
    live = await desk.everything()
    await desk.lose_power()
    assert await desk.everything() == live


async def test_generation_that_came_and_went_while_its_group_is_deleted_is_kept(desk: Desk) -> None:
    await desk.commit({0: 1})
    desk.disk.hold_syncs()
    deleting = asyncio.create_task(desk.ask.delete_group("g"))
    await breathe()
    joined = await desk.join()
    leaving = asyncio.create_task(desk.ask.leave("g", [(joined.member_id, None)]))
    await breathe()
    desk.disk.release_syncs()
    await asyncio.gather(deleting, leaving)
    live = await desk.everything()
    await desk.lose_power()
    assert await desk.everything() == live


async def test_looking_at_unknown_groups_creates_nothing() -> None:
    desk = await Desk().open()
    for asked in (
        desk.ask.delete_group("g"),
        desk.ask.delete_offsets("g", []),
        desk.ask.heartbeat("g", 1, "m", None),
    ):
        with pytest.raises(KafkaError):
            await asked
    assert desk.topics.get(CONSUMER_OFFSETS) is None
    await desk.close()


async def test_commit_under_way_is_forgotten_with_its_topic(desk: Desk) -> None:
    desk.disk.hold_syncs()
    committing = asyncio.create_task(desk.commit({0: 1}))
    await breathe()
    forgetting = asyncio.create_task(desk.delete_topic())
    await breathe()
    desk.disk.release_syncs()
    await asyncio.gather(committing, forgetting)
    assert await desk.offset() == -1
    await desk.restart()
    assert await desk.offset() == -1


async def test_requests_wait_until_the_groups_are_read(desk: Desk) -> None:
    for offset in range(50):
        await desk.commit({0: offset})
    await desk.close()
    await desk.open(wait=False)
    assert await desk.offset() == 49


async def test_members_have_a_whole_session_after_a_restart(desk: Desk) -> None:
    joined = await desk.enter()
    desk.monotonic_s += 9.9
    await desk.restart()
    group = await desk.ask.group("g")
    assert group is not None
    assert group.members[joined.member_id].expires_ms == int(desk.monotonic_s * 1000) + 10_000


async def test_unreadable_groups_are_refused_not_forgotten(desk: Desk) -> None:
    await desk.commit({0: 1})
    partition = desk.topics.partition(CONSUMER_OFFSETS, coordinator_partition("g", 50))
    broken = bytearray(build_batch([Record(0, 0, b"\0\1\xff", b"what?")]))
    partition.append(broken, header=read_header(broken))
    await desk.close()
    await desk.open(wait=False)
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        await desk.offset()
    assert desk.log.of("groups_not_loaded")


async def test_records_of_later_releases_are_skipped(desk: Desk) -> None:
    await desk.commit({0: 1})
    partition = desk.topics.partition(CONSUMER_OFFSETS, coordinator_partition("g", 50))
    unknown = bytearray(build_batch([Record(0, 0, b"\0\11anything", b"at all")]))
    partition.append(unknown, header=read_header(unknown))
    await desk.restart()
    assert await desk.offset() == 1


async def test_closed_coordinator_sends_clients_elsewhere() -> None:
    desk = await Desk().open()
    first = await desk.enter()
    waiting = asyncio.create_task(desk.join())
    await breathe()
    await desk.groups.close()
    for late in (waiting, desk.join(), desk.commit({0: 1}), desk.ask.leave("g", [(first.member_id, None)])):
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await late
    await desk.close()


async def test_expired_groups_leave_nothing_behind() -> None:
    desk = await Desk(offsets_retention_check_interval_ms="5", offsets_retention_minutes="1").open()
    joined = await desk.enter()
    await desk.commit({0: 1}, member_id=joined.member_id, generation=1)
    await desk.ask.leave("g", [(joined.member_id, None)])
    desk.wall_ms += 59_999
    await asyncio.sleep(0.05)
    assert await desk.offset() == 1
    desk.wall_ms += 1
    async with asyncio.timeout(10):
        while await desk.ask.group("g") is not None:
            await asyncio.sleep(0.005)
    await desk.restart()
    assert await desk.everything() == {}
    await desk.close()


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


class History:
    """Steps carried out at once, each a task; what became of them is settled at the end."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.tasks: list[asyncio.Task[object]] = []
        self.members: dict[str, str] = {}

    async def step(self, what: int, group: str, partition: int, offset: int) -> None:
        desk = self.desk
        if what == COMMIT:
            self.start(
                desk.commit({partition: offset}, group, self.members.get(group, ""), await self.generation(group))
            )
        elif what == DELETE_OFFSET:
            self.start(desk.ask.delete_offsets(group, [("t", partition)]))
        elif what == DELETE_GROUP:
            self.start(desk.ask.delete_group(group))
        elif what == ENTER and group not in self.members:
            joined = await desk.join(group=group)
            self.members[group] = joined.member_id
            self.start(desk.sync(joined, [joined.member_id], group))
        elif what == LEAVE and group in self.members:
            self.start(desk.ask.leave(group, [(self.members.pop(group), None)]))
        elif what == HOLD and desk.disk.held is None:
            desk.disk.hold_syncs()
        elif what == RELEASE and desk.disk.held is not None:
            desk.disk.release_syncs()
        elif what == BREATHE:
            await breathe()

    async def generation(self, group: str) -> int:
        found = await self.desk.ask.group(group)
        return found.generation_id if found is not None and group in self.members else -1

    def start(self, work: object) -> None:
        self.tasks.append(asyncio.ensure_future(work))  # type: ignore[arg-type]

    async def settle(self) -> None:
        if self.desk.disk.held is not None:
            self.desk.disk.release_syncs()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, KafkaError), outcome


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_replay_finds_the_live_state(steps: list[tuple[int, str, int]]) -> None:
    async def run() -> None:
        desk = await Desk().open()
        await desk.commit({9: 9}, group="first")
        history = History(desk)
        for offset, (what, group, partition) in enumerate(steps):
            await history.step(what, group, partition, offset)
        await history.settle()
        live = await desk.everything()
        await desk.lose_power()
        assert await desk.everything() == live
        await desk.close()

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([COMMIT] * 4 + [BREATHE, HOLD, RELEASE, POWER_CUT]), st.integers(0, 1))),
    st.integers(),
)
def test_committed_offset_never_decreases_by_itself(steps: list[tuple[int, int]], seed: int) -> None:
    """Offsets only ever grow here; so must what readers see, and nothing acknowledged may be lost with the power."""

    async def run() -> None:
        desk = await Desk().open()
        await desk.commit({9: 9}, group="first")
        rng = Random(seed)
        acknowledged, seen = {0: -1, 1: -1}, {0: -1, 1: -1}

        async def commit(partition: int, offset: int) -> None:
            await desk.commit({partition: offset})
            acknowledged[partition] = max(acknowledged[partition], offset)

        tasks: list[asyncio.Task[None]] = []
        for offset, (what, partition) in enumerate([*steps, (POWER_CUT, 0)]):
            if what == COMMIT:
                tasks.append(asyncio.create_task(commit(partition, offset)))
                await asyncio.sleep(0)
            elif what == POWER_CUT:
                await desk.lose_power(rng)
            elif what == HOLD and desk.disk.held is None:
                desk.disk.hold_syncs()
            elif what == RELEASE and desk.disk.held is not None:
                desk.disk.release_syncs()
            else:
                await breathe()
            for each in seen:
                now = await desk.offset(each)
                assert now >= seen[each]
                assert now >= acknowledged[each]
                seen[each] = now
        await desk.close()

    asyncio.run(run())
