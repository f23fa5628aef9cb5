"""Properties of assignors and of consumer groups with members of both protocols: balance, one owner, progress,
records.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from semel_broker.groups.consumer import state
from semel_broker.groups.consumer.assignors import Assignor, Subscriber, ranges, uniform
from semel_broker.groups.consumer.classic_members import join_group, may_sync, must_join
from semel_broker.groups.consumer.model import (
    LEFT_STATIC,
    NOTHING,
    Classic,
    ConsumerGroup,
    TopicFacts,
    TopicIdPartitions,
)
from semel_broker.groups.consumer.records import change_of, rows
from semel_broker.groups.consumer.requests import Catalog, ConsumerRules, Heartbeat, HeartbeatDecision
from semel_broker.scheduling.work_turns import Work
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import decode_offsets_key

TOPICS = [bytes([index]) * 16 for index in range(1, 5)]
topic_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
subscriptions = st.dictionaries(
    st.sampled_from("abcdefg"), st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=7
)


def subscribers(
    wanted: dict[str, frozenset[bytes]], before: dict[str, TopicIdPartitions] | None = None
) -> dict[str, Subscriber]:
    return {each: Subscriber(topics, (before or {}).get(each, NOTHING)) for each, topics in wanted.items()}


@given(subscriptions, topic_counts, st.sampled_from([uniform, ranges]))
def test_each_partition_of_a_subscribed_topic_has_one_member_that_reads_it(
    wanted: dict[str, frozenset[bytes]], topics: dict[bytes, int], assignor: Assignor
) -> None:
    found = assignor(subscribers(wanted), topics)
    places = [place for owned in found.values() for place in owned]
    read = {topic_id for topic_ids in wanted.values() for topic_id in topic_ids}
    assert sorted(places) == sorted(
        (topic, at) for topic, count in topics.items() if topic in read for at in range(count)
    )
    assert all(place[0] in wanted[member] for member, owned in found.items() for place in owned)
    assert set(found) == set(wanted)


@given(st.frozensets(st.sampled_from("abcdefg"), min_size=1), topic_counts, st.data())
def test_members_with_equal_subscriptions_differ_by_one_partition_at_most(
    members: frozenset[str], topics: dict[bytes, int], data: Any
) -> None:
    before = uniform(
        subscribers(dict.fromkeys(data.draw(st.frozensets(st.sampled_from("abcdefg"))), frozenset(topics))), topics
    )
    found = uniform(subscribers(dict.fromkeys(members, frozenset(topics)), before), topics)
    loads = [len(owned) for owned in found.values()]
    assert max(loads) - min(loads) <= 1
    stayed = members & set(before)
    if members > set(before):  # members joined: partitions move to them alone
        assert all(found[each] <= before[each] for each in stayed)
    if members < set(before):  # members left: the others keep what they had
        assert all(found[each] >= before[each] for each in stayed)


@given(subscriptions, topic_counts)
def test_uniform_moves_nothing_when_nothing_has_changed(
    wanted: dict[str, frozenset[bytes]], topics: dict[bytes, int]
) -> None:
    found = uniform(subscribers(wanted), topics)
    assert uniform(subscribers(wanted, found), topics) == found


@given(subscriptions, topic_counts)
def test_no_single_move_would_make_the_loads_more_equal(
    wanted: dict[str, frozenset[bytes]], topics: dict[bytes, int]
) -> None:
    found = uniform(subscribers(wanted), topics)
    for heavy, owned in found.items():
        for topic_id, _ in owned:
            assert all(len(owned) - len(found[light]) <= 1 for light, read in wanted.items() if topic_id in read), heavy


def test_ranges_of_topics_with_equal_partitions_go_together() -> None:
    found = ranges(subscribers(dict.fromkeys("ab", frozenset(TOPICS[:2]))), dict.fromkeys(TOPICS[:2], 5))
    assert {at for topic, at in found["a"] if topic == TOPICS[0]} == {0, 1, 2}
    assert {at for topic, at in found["a"] if topic == TOPICS[1]} == {0, 1, 2}


class ModelMember:
    """A member as its client: its epoch and the partitions that it owns."""

    def __init__(self, member_id: str, instance_id: str | None, topics: tuple[str, ...], regex: str | None) -> None:
        self.member_id, self.instance_id, self.topics, self.regex = member_id, instance_id, topics, regex
        self.epoch = 0
        self.owned: TopicIdPartitions = NOTHING
        self.classic: Classic | None = None
        self.is_eager = False

    def join_group(self) -> Heartbeat:
        """A JoinGroup of the classic protocol; eager members revoke everything before it."""
        if self.is_eager:
            self.owned = NOTHING
        return Heartbeat(
            member_id=self.member_id,
            instance_id=self.instance_id,
            epoch=0,
            rebalance_timeout_ms=1000,
            topics=self.topics,
            regex="",
            owned=self.owned,
            classic=self.classic,
        )

    def request(self, *, full: bool) -> Heartbeat:
        says = full or self.epoch == 0
        return Heartbeat(
            member_id=self.member_id,
            instance_id=self.instance_id,
            epoch=self.epoch,
            rebalance_timeout_ms=1000 if says else -1,
            topics=self.topics if says else None,
            regex=(self.regex or "") if says else None,
            owned=self.owned,
        )


class Groups(RuleBasedStateMachine):
    """Members join, leave, die and lose answers; topics are created, grown and deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ConsumerGroup("g")
        self.stored: dict[bytes, bytes | None] = {}
        self.topics: dict[str, TopicFacts] = {}
        self.version = 0
        self.clients: dict[str, ModelMember] = {}
        self.number = 0

    @initialize(count=st.integers(1, 6))
    def first_topic(self, count: int) -> None:
        self.change_topic("t0", TopicFacts(TOPICS[0], count))

    def change_topic(self, name: str, facts: TopicFacts | None) -> None:
        self.version += 1
        self.topics.pop(name, None)
        if facts is not None:
            self.topics[name] = facts

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.version, self.topics.get, lambda: sorted(self.topics))

    def carry_out(self, changes: tuple[Any, ...]) -> None:
        self.stored.update(rows("g", changes))
        for change in changes:
            self.group.apply(change)

    def beat_classic(self, client: ModelMember, *, full: bool, is_lost: bool) -> None:
        """A heartbeat of the classic protocol; if the answer asks for it, JoinGroup and SyncGroup."""
        group, member_id = self.group, client.member_id
        is_here = member_id in group.members and group.current(member_id).epoch == client.epoch
        if is_here and not full and not must_join(group, member_id):
            return
        if not is_here:
            client.owned = NOTHING  # UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION: its partitions are lost
        try:
            decision = join_group(
                group, client.join_group(), self.catalog, ConsumerRules(), 0, is_named=client.epoch > 0
            )
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            client.epoch = 0
            return
        self.carry_out(decision.changes)
        if is_lost:
            return
        client.epoch = decision.answer.epoch
        if may_sync(group, member_id):
            client.owned = group.current(member_id).assigned

    def decide(self, ask: Heartbeat) -> HeartbeatDecision:
        matched = Work(state.matching(self.group, ask, self.catalog))
        matched.advance(1 << 30)
        return state.heartbeat(self.group, ask, self.catalog, matched.result(), ConsumerRules(), 0)

    def beat(self, client: ModelMember, *, full: bool = False, is_lost: bool = False) -> None:
        if client.classic is not None:
            self.beat_classic(client, full=full, is_lost=is_lost)
            return
        ask = client.request(full=full)
        try:
            decision = self.decide(ask)
        except KafkaError as error:
            if error.code not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                raise
            client.epoch, client.owned = 0, NOTHING
            return
        if state.is_quiet(self.group, ask):
            assert not decision.changes
        self.carry_out(decision.changes)
        if not is_lost:
            client.epoch = decision.answer.epoch
            if decision.answer.assigned is not None:
                client.owned = decision.answer.assigned

    # --- what happens ---

    @rule(
        static=st.booleans(),
        topics=st.sampled_from([("t0",), ("t0", "t1"), ("t1",), ()]),
        regex=st.sampled_from([None, "t.*", "t1"]),
        is_lost=st.booleans(),
        classic=st.sampled_from([None, "eager", "cooperative"]),
    )
    @precondition(lambda self: len(self.clients) < 5)
    def come(
        self, static: bool, topics: tuple[str, ...], regex: str | None, is_lost: bool, classic: str | None
    ) -> None:
        self.number += 1
        name = f"m{self.number}"
        client = self.clients[name] = ModelMember(name, f"i{self.number}" if static else None, topics, regex)
        if classic is not None:
            client.classic, client.regex = Classic(6000, (("range", b""),)), None
            client.is_eager = classic == "eager"
        self.beat(client, is_lost=is_lost)

    @rule(data=st.data(), full=st.booleans(), is_lost=st.booleans())
    @precondition(lambda self: self.clients)
    def heartbeat(self, data: Any, full: bool, is_lost: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        self.beat(client, full=full, is_lost=is_lost)

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def leave(self, data: Any) -> None:
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        if client.member_id in self.group.members:
            self.carry_out(state.remove(self.group, client.member_id))

    @rule(data=st.data())
    @precondition(lambda self: self.group.members)
    def expire(self, data: Any) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.group.members)))
        if member_id in self.clients:
            self.clients[member_id].owned = NOTHING  # a client stops reading before its session ends
        self.carry_out(state.remove(self.group, member_id))

    @rule(data=st.data(), topics=st.sampled_from([("t0",), ("t0", "t1"), ("t2",)]))
    @precondition(lambda self: any(client.instance_id for client in self.clients.values()))
    def restart(self, data: Any, topics: tuple[str, ...]) -> None:
        """A static member leaves for a while, and comes back under a new id."""
        client = data.draw(st.sampled_from([each for each in self.clients.values() if each.instance_id]))
        del self.clients[client.member_id]
        if client.classic is None and self.group.instances.get(client.instance_id or "") == client.member_id:
            ask = Heartbeat(member_id=client.member_id, instance_id=client.instance_id, epoch=LEFT_STATIC)
            self.carry_out(self.decide(ask).changes)
        self.number += 1
        new = ModelMember(f"m{self.number}", client.instance_id, topics, client.regex)
        new.classic, new.is_eager = client.classic, client.is_eager
        self.clients[new.member_id] = new
        self.beat(new)

    @rule(name=st.sampled_from(["t0", "t1", "t2"]), count=st.integers(0, 7))
    def topic(self, name: str, count: int) -> None:
        facts = self.topics.get(name)
        if not count:
            self.change_topic(name, None)
        elif facts is None or facts.partition_count < count:
            self.change_topic(name, TopicFacts(TOPICS[int(name[1])], count))

    @rule()
    def restart_of_the_coordinator(self) -> None:
        replayed = ConsumerGroup("g")
        for raw_key, raw_value in sorted(self.stored.items(), key=lambda row: row[0][::-1]):
            key = decode_offsets_key(raw_key)
            assert key is not None
            if raw_value is not None:
                replayed.apply(change_of(key, raw_value))  # type: ignore[arg-type]
        for field in ("epoch", "assignment_epoch", "topics", "members", "instances", "targets", "currents", "owners"):
            assert getattr(replayed, field) == getattr(self.group, field), field
        self.group = replayed

    # --- what must hold ---

    @invariant()
    def no_partition_has_two_members(self) -> None:
        held = [place for current in self.group.currents.values() for place in current.held]
        assert len(held) == len(set(held))
        assert {
            place: member for member, current in self.group.currents.items() for place in current.held
        } == self.group.owners

    @invariant()
    def no_two_clients_own_a_partition(self) -> None:
        owned = [place for client in self.clients.values() for place in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def what_a_client_owns_is_held_for_it(self) -> None:
        for client in self.clients.values():
            if client.member_id in self.group.members:
                assert client.owned <= self.group.current(client.member_id).held

    def teardown(self) -> None:
        """End the faults.

        Within five rounds of heartbeats every live member has its target, and no state of others remains.
        """
        for member_id in sorted(set(self.group.members) - set(self.clients)):
            self.carry_out(state.remove(self.group, member_id))
        for client in self.clients.values():  # heartbeats of the classic protocol do not look at the topics again
            self.beat(client, full=client.classic is not None)
        for _ in range(5):
            for client in self.clients.values():
                self.beat(client)
        for client in self.clients.values():
            assert self.group.has_reached_target(client.member_id)
            assert client.owned == self.group.targets[client.member_id]
        before = self.group.epoch
        for client in self.clients.values():
            self.beat(client, full=True)
        assert self.group.epoch == before, "the group has come to rest"


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
