"""The plan of a reassignment: even over brokers and racks, without needless moves of replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel import TopicPartition
from semel.cli.topic.reassign_plan import plan

Placements = Mapping[TopicPartition, Sequence[int]]


def topic(*replicas: Sequence[int], name: str = "t") -> dict[TopicPartition, Sequence[int]]:
    return {TopicPartition(name, index): ids for index, ids in enumerate(replicas)}


def brokers(*ids: int) -> dict[int, str | None]:
    return dict.fromkeys(ids)


def load(placed: Placements, ids: Iterable[int]) -> Counter[int]:
    counts: Counter[int] = Counter(dict.fromkeys(ids, 0))
    counts.update(broker for replicas in placed.values() for broker in replicas)
    return counts


def spread(counts: Counter[int]) -> int:
    return max(counts.values()) - min(counts.values())


def copies(before: Placements, after: Placements) -> int:
    return sum(broker not in before[at] for at, replicas in after.items() for broker in replicas)


def test_an_even_assignment_is_not_changed() -> None:
    now = topic((1, 2), (2, 3), (3, 1))
    assert plan(now, brokers(1, 2, 3)) == now


def test_a_new_broker_gets_its_share_and_no_more_is_copied() -> None:
    now = topic(*[(1, 2), (2, 1)] * 6)
    then = plan(now, brokers(1, 2, 3))
    assert set(load(then, (1, 2, 3)).values()) == {8}
    assert copies(now, then) == 8


def test_a_broker_that_is_not_given_loses_all_replicas() -> None:
    now = topic((1, 2), (2, 3), (3, 1))
    then = plan(now, brokers(1, 2))
    assert all(sorted(replicas) == [1, 2] for replicas in then.values())
    assert copies(now, then) == 2
    assert spread(Counter(replicas[0] for replicas in then.values())) == 1


def test_more_replicas_are_added_and_fewer_taken_away() -> None:
    now = topic((1,), (1,), (1,))
    three = plan(now, brokers(1, 2, 3), replication_factor=3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in three.values())
    assert sorted(replicas[0] for replicas in three.values()) == [1, 2, 3]
    one = plan(three, brokers(1, 2, 3), replication_factor=1)
    assert copies(three, one) == 0
    assert sorted(one.values()) == [(1,), (2,), (3,)]


def test_replicas_are_in_different_racks_where_there_are_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    then = plan(topic(*[(1, 2)] * 4, *[(3, 4)] * 4), racks)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in then.values())
    assert spread(load(then, racks)) == 0
    assert spread(Counter(replicas[0] for replicas in then.values())) == 0


def test_topics_of_one_partition_do_not_all_go_to_the_same_broker() -> None:
    now = {TopicPartition(f"t{n}", 0): (1, 2, 3) for n in range(9)}
    one = plan(now, brokers(1, 2, 3), replication_factor=1)
    assert spread(load(one, (1, 2, 3))) == 0
    same = plan(now, brokers(1, 2, 3))
    assert Counter(replicas[0] for replicas in same.values()) == {1: 3, 2: 3, 3: 3}
    assert copies(now, same) == 0


def test_a_leadership_moves_along_a_chain_of_brokers_if_needed() -> None:
    """Broker 1 shares no partition with broker 3, but each of them does with 2."""
    now = topic((1, 2), (1, 2), (2, 3))
    then = plan(now, brokers(1, 2, 3))
    assert sorted(replicas[0] for replicas in then.values()) == [1, 2, 3]


def test_too_few_brokers_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="t-0: 3 replicas need as many brokers, and there are 2: lower"):
        plan(topic((1, 2, 3)), brokers(1, 2))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_plan_is_even_complete_and_at_rest(data: st.DataObject) -> None:
    everyone = range(1, 7)
    ids = data.draw(st.lists(st.sampled_from(everyone), min_size=3, unique=True))
    kinds = st.sampled_from(("a", "b", "c")) if data.draw(st.booleans()) else st.none()
    racks = {broker: data.draw(kinds) for broker in ids}
    now: dict[TopicPartition, Sequence[int]] = {}
    for name in ("t", "u", "v")[: data.draw(st.integers(1, 3))]:
        size = data.draw(st.integers(1, 3))
        rows = data.draw(st.lists(st.permutations(everyone), min_size=1, max_size=9))
        now |= topic(*(row[:size] for row in rows), name=name)
    then = plan(now, racks)
    place = {broker: rack or str(broker) for broker, rack in racks.items()}
    for at, replicas in then.items():
        assert len(set(replicas)) == len(replicas) == len(now[at])
        assert set(replicas) <= set(ids)
        assert len({place[broker] for broker in replicas}) == min(len(replicas), len(set(place.values())))
    if None in racks.values():
        for name in {at.topic for at in now}:
            assert spread(load({at: r for at, r in then.items() if at.topic == name}, ids)) <= 1
        assert spread(load(then, ids)) <= 1
    assert plan(then, racks) == then, "a plan that was carried out leaves nothing to do"
