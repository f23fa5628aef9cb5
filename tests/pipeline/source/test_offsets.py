"""Offsets of many partitions: stored as JSON, limited, split into tasks."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pyspark_semel.source.offsets import BEGIN, INITIAL, Offsets, Splitting, as_json, from_json, limited, ranges
from pyspark_semel.source.progress import lag
from semel.structs import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 12))
offsets = st.integers(0, 1 << 50)
bounds = st.dictionaries(partitions, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8)


def starts_and_ends(given: dict[TopicPartition, tuple[int, int]]) -> tuple[Offsets, Offsets]:
    return {at: start for at, (start, _) in given.items()}, {at: start + size for at, (start, size) in given.items()}


@given(st.dictionaries(partitions, offsets))
def test_offsets_survive_json_and_equal_offsets_give_equal_texts(found: Offsets) -> None:
    kept = json.dumps(as_json(found))
    assert from_json(json.loads(kept)) == found
    assert kept == json.dumps(as_json(dict(reversed(found.items()))))
    marked = as_json(found) | {INITIAL: True, BEGIN: as_json(found)}
    assert from_json(marked) == found


@given(bounds, st.integers(1, 3000))
def test_a_limit_is_shared_in_proportion_and_no_partition_starves(
    given: dict[TopicPartition, tuple[int, int]], count: int
) -> None:
    start, end = starts_and_ends(given)
    total = sum(end.values()) - sum(start.values())
    found = limited(start, end, count)
    assert found.keys() == end.keys()
    taken = {at: found[at] - start[at] for at in found}
    assert all(start[at] <= found[at] <= end[at] for at in found)
    assert all(taken[at] > 0 for at in found if end[at] > start[at])
    assert sum(taken.values()) <= max(count, len(found)) + len(found)
    if total <= count:
        assert found == end
    else:
        assert all(abs(taken[at] - count * (end[at] - start[at]) / total) <= 1 for at in found)


def test_a_limit_is_shared_as_in_sparks_kafka_source() -> None:
    start = {TopicPartition("t", n): 0 for n in range(3)}
    end = {TopicPartition("t", 0): 100, TopicPartition("t", 1): 10, TopicPartition("t", 2): 1}
    assert list(limited(start, end, 10).values()) == [9, 1, 1]


@given(bounds, st.none() | st.integers(1, 40), st.none() | st.integers(1, 200))
def test_tasks_cover_every_offset_once(
    given: dict[TopicPartition, tuple[int, int]], tasks_min: int | None, records_max: int | None
) -> None:
    start, end = starts_and_ends(given)
    found = ranges(start, end, Splitting(tasks_min, records_max))
    for at in end:
        mine = [(one.start, one.end) for one in found if (one.topic, one.partition) == at]
        if end[at] == start[at]:
            assert mine == []
            continue
        assert mine[0][0] == start[at]
        assert mine[-1][1] == end[at]
        assert all(before[1] == after[0] for before, after in pairwise(mine))
        assert all(a < b for a, b in mine)
    total = sum(end.values()) - sum(start.values())
    assert len(found) >= min(tasks_min or 0, total)
    assert records_max is None or all(one.end - one.start <= records_max for one in found)
    assert tasks_min or records_max or len(found) == sum(end[at] > start[at] for at in end)


def test_lag_is_computed_from_a_progress_report() -> None:
    progress = {"endOffset": '{"t": {"0": 5}, "$from": {"t": {"0": 1}}}', "latestOffset": {"t": {"0": 9, "1": 3}}}
    assert lag(progress) == {TopicPartition("t", 0): 4, TopicPartition("t", 1): 3}
    assert lag({"endOffset": {"t": {"0": 5}}, "latestOffset": None}) is None
    assert lag({"endOffset": {"t": {"0": 5}}, "latestOffset": "null"}) is None
