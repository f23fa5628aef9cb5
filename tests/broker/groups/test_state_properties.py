"""Random sequences of requests, timeouts, slow disks and failed writes: the invariants of a group after every step."""

from __future__ import annotations

from broker.groups.group_state_driver import SESSION_MS, GroupStateDriver
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import booleans, data, integers, sampled_from
from semel_broker.groups.classic.group import GroupState
from semel_broker.groups.requests import Joined, Synced
from semel_protocol.errors import ErrorCode, KafkaError

PROTOCOLS = sampled_from(["range", "range sticky", "sticky range", "sticky"])
INSTANCES = sampled_from([None, None, "a", "b"])


class GroupMachine(RuleBasedStateMachine):
    """Members join, sync, time out and leave at random, over a disk that is slow and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.room = GroupStateDriver(size_max=5, hold=True)
        self.ids: list[str] = []
        self.leaders: dict[int, str] = {}
        self.seen: set[str] = set()
        self.assigned: dict[int, dict[str, bytes]] = {}

    def somebody(self, choice: data) -> str:  # type: ignore[valid-type]
        return choice.draw(sampled_from(self.ids)) if self.ids else "nobody"  # type: ignore[attr-defined]

    @rule(protocols=PROTOCOLS, instance=INSTANCES, must_return=booleans())
    def come(self, protocols: str, instance: str | None, must_return: bool) -> None:
        self.room.join(protocols=protocols, instance=instance, must_return=must_return)

    @rule(choice=data(), protocols=PROTOCOLS)
    def come_back(self, choice: data, protocols: str) -> None:  # type: ignore[valid-type]
        member_id = self.somebody(choice)
        member = self.room.group.members.get(member_id)
        self.room.join(member_id, protocols=protocols, instance=member.instance_id if member else None)

    @rule(choice=data())
    def sync(self, choice: data) -> None:  # type: ignore[valid-type]
        group = self.room.group
        member_id = self.somebody(choice)
        self.room.sync(member_id, {each: f"{group.generation_id}/{each}".encode() for each in group.members})

    @rule(choice=data())
    def leave(self, choice: data) -> None:  # type: ignore[valid-type]
        member_id = self.somebody(choice)
        assert self.room.leave(member_id) in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)

    @rule(choice=data())
    def heartbeat(self, choice: data) -> None:  # type: ignore[valid-type]
        self.room.heartbeat(self.somebody(choice))

    @rule(choice=data(), gives_id=booleans())
    def lose_connection(self, choice: data, gives_id: bool) -> None:  # type: ignore[valid-type]
        """Close the connection of a request that waits or has waited, or that was answered with an id."""
        room = self.room
        joins = [token for token in room.asked if token.startswith("join")]
        if not joins:
            return
        token = choice.draw(sampled_from(joins))  # type: ignore[attr-defined]
        room.lose(token, getattr(room.answers.get(token), "member_id", "") if gives_id else "")

    @rule(ms=integers(1, 2 * SESSION_MS))
    def wait(self, ms: int) -> None:
        self.room.pass_time(ms)

    @precondition(lambda self: self.room.unsettled)
    @rule()
    def settle(self) -> None:
        self.room.settle(1)

    @precondition(lambda self: self.room.unsettled)
    @rule()
    def refuse(self) -> None:
        self.room.refuse(KafkaError(ErrorCode.NOT_COORDINATOR))

    @invariant()
    def answers_are_about_one_generation_with_one_leader(self) -> None:
        for token, result in self.room.answers.items():
            if token in self.seen:
                continue
            self.seen.add(token)
            if isinstance(result, Joined):
                self.ids.append(result.member_id)
                if result.members and not result.skip_assignment:
                    assert result.leader == result.member_id
                    assert self.leaders.setdefault(result.generation_id, result.leader) == result.leader
                    assert len({m.member_id for m in result.members}) == len(result.members)
            elif isinstance(result, KafkaError) and result.code is ErrorCode.MEMBER_ID_REQUIRED:
                self.ids.append(result.member_id)  # type: ignore[attr-defined]

    @invariant()
    def assignment_is_the_members_own(self) -> None:
        for token, result in self.room.answers.items():
            if isinstance(result, Synced) and result.assignment:
                assert result.protocol in ("range", "sticky")
                owner = self.room.asked[token]
                member = self.room.group.members.get(owner)
                if member is not None and member.instance_id is None:
                    assert result.assignment.decode().split("/")[1] == owner

    @invariant()
    def group_is_whole(self) -> None:
        group = self.room.group
        members = list(group.members.values())
        assert len(members) <= 5
        assert (group.leader in group.members) if members else group.leader is None
        assert group.joining_count == sum(member.joining is not None for member in members)
        assert group.static_members == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert list(group.members) == [member.member_id for member in members]
        assert not set(group.pending) & set(group.members)
        assert set(group.awaited) <= set(group.pending)
        counted: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                counted[name] = counted.get(name, 0) + 1
        assert group.supported == counted
        assert not members or len(members) in counted.values()

    @invariant()
    def state_fits(self) -> None:
        group = self.room.group
        members = list(group.members.values())
        if group.state is GroupState.EMPTY:
            assert not members
        else:
            assert members
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.deadline_ms is not None
            assert not any(member.syncing for member in members)
            assert not group.all_joined
        else:
            assert group.joining_count == 0
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert group.deadline_ms is not None
        if group.state is GroupState.STABLE:
            assert not any(member.syncing for member in members)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Each request is answered, or the state machine still holds its future."""
        room = self.room
        known = {m.joining for m in room.group.members.values()} | {m.syncing for m in room.group.members.values()}
        known |= {getattr(change, "to", None) for change in room.unsettled}
        for token in room.asked:
            assert (token in room.answers) != (token in known), token

    def teardown(self) -> None:
        """Without further requests every group becomes stable or empty, and every request is answered."""
        self.room.settle()
        for _ in range(20):
            self.room.pass_time(60_000)
            self.room.settle()
        assert self.room.group.state is GroupState.EMPTY
        assert set(self.room.asked) == set(self.room.answers)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
