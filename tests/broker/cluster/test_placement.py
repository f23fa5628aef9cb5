"""The placement of new partitions: evenly over the brokers, and over the racks if there are any."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json
from semel_broker.cluster import placement
from semel_broker.cluster.image import Image
from semel_broker.cluster.placement import Load, load
from semel_broker.cluster.records import TopicRecord
from semel_broker.cluster.store import StoreEntry
from semel_broker.cluster.topic_plan import Sites

racks_of_brokers = st.dictionaries(st.integers(0, 50), st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=12)


def place(*args: Any, **options: Any) -> list[list[int]]:
    """Run all steps of a placement."""
    steps = placement.place(*args, **options)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            rows: list[list[int]] = done.value
            return rows


def spread(counts: Counter[int], brokers: dict[int, str]) -> int:
    """The difference between the fullest broker and the emptiest."""
    return max(counts[b] for b in brokers) - min(counts[b] for b in brokers)


def leaders(replicas: list[list[int]]) -> Counter[int]:
    return Counter(row[0] for row in replicas)


def all_replicas(replicas: list[list[int]]) -> Counter[int]:
    return Counter(broker for row in replicas for broker in row)


@settings(deadline=None)
@given(racks_of_brokers, st.integers(1, 40), st.data())
def test_leaders_are_even_and_no_broker_or_rack_is_taken_twice_before_all_are(
    racks: dict[int, str], count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    replicas = place(count, factor, racks)
    assert len(replicas) == count
    assert spread(leaders(replicas), racks) <= 1
    rack_count = len(Counter(racks.values()))
    for row in replicas:
        assert len(row) == len(dict.fromkeys(row)) == factor
        assert all(broker in racks for broker in row)
        assert len(Counter(racks[broker] for broker in row)) == min(factor, rack_count)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 40), st.data())
def test_followers_are_about_even_where_racks_are_of_one_size(
    rack_count: int, in_rack: int, count: int, data: st.DataObject
) -> None:
    racks = {number: f"rack {number % rack_count}" for number in range(rack_count * in_rack)}
    factor = data.draw(st.integers(1, len(racks)))
    replicas = place(count, factor, racks)
    assert spread(all_replicas(replicas) - leaders(replicas), racks) <= 2


@settings(deadline=None)
@given(racks_of_brokers, st.integers(1, 20), st.integers(1, 20), st.data())
def test_a_topic_that_grew_lies_like_one_that_was_that_large_from_the_beginning(
    racks: dict[int, str], first: int, more: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    begun = place(first, factor, racks)
    assert [*begun, *place(more, factor, racks, existing=begun)] == place(first + more, factor, racks)


def test_a_broker_that_came_later_leads_first_when_a_topic_grows() -> None:
    begun = place(4, 2, {1: "", 2: ""})
    assert [row[0] for row in place(2, 2, {1: "", 2: "", 3: ""}, existing=begun)] == [3, 3]


@pytest.mark.parametrize("count", [3, 4, 5, 9])
def test_what_a_dead_broker_led_falls_to_all_others_about_evenly(count: int) -> None:
    racks = dict.fromkeys(range(count), "")
    replicas = place(count * 8 * (count - 1), 3, racks)
    for dead in racks:
        heirs = Counter(row[1] for row in replicas if row[0] == dead)
        assert all(6 <= heirs[heir] <= 10 for heir in racks if heir != dead), heirs


def test_neighbouring_leaders_are_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    rows = place(8, 2, racks)
    assert all(racks[one[0]] != racks[other[0]] for one, other in pairwise(rows))


def test_topics_of_one_partition_take_turns() -> None:
    image = Image()
    for number in range(6):
        replicas = place(1, 2, {1: "", 2: "", 3: ""}, elsewhere=load(image))
        record = TopicRecord(f"t{number}", f"id{number}", replicas, {})
        image.apply([StoreEntry(f"topics/t{number}", json.encode(record), number + 1)], number + 1)
    assert load(image) == Load(Counter({1: 2, 2: 2, 3: 2}), Counter({1: 4, 2: 4, 3: 4}))


def test_more_replicas_than_brokers_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="3 replicas on 2 brokers"):
        place(1, 3, {1: "", 2: ""})


def test_a_disk_that_hangs_gets_no_replica_while_others_suffice() -> None:
    racks = {1: "a", 2: "b", 3: "c"}
    sites = Sites(racks, hanging=[2])
    assert sites.racks_for(2) == {1: "a", 3: "c"}
    assert {broker for row in place(6, 2, sites.racks_for(2)) for broker in row} == {1, 3}
    assert sites.racks_for(3) == racks, "two brokers cannot have three replicas"
    grown = place(6, 2, sites.racks_for(2), existing=[[2, 1], [1, 2]])
    assert {broker for row in grown for broker in row} == {1, 3}, "also of a topic with replicas on the disk that hangs"
