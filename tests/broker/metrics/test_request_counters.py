"""Counters of requests: short requests are in the first bucket, and errors are found in all rows of a response."""

from __future__ import annotations

import pytest
from semel_broker.counters.requests import AT_ONCE_S, ROWS_MAX, ApiCounters, RequestCounters
from semel_protocol.fields import Encoded
from semel_protocol.messages.k00_produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)

from tools.bench.uncounted import REPLACED, uncounted


def test_requests_that_take_no_time_are_in_the_first_bucket_with_their_sum() -> None:
    counters = ApiCounters()
    counters.requests, counters.handle_s = 3, 0.5 + AT_ONCE_S
    counters.handle.observe(0.5)
    handle, queue = counters.whole_handle, counters.whole_queue
    assert (handle.counts[0], handle.count, handle.sum) == (2, 3, 0.5 + AT_ONCE_S)
    assert (queue.counts[0], queue.count, queue.sum) == (3, 3, 0.0)
    assert counters.handle.count == 1, "a reader changes nothing"


def test_apis_that_do_not_exist_share_their_counters() -> None:
    counters = RequestCounters()
    assert counters.of(9_999) is counters.of(-1)
    assert counters.of(0) is counters.of(0) is not counters.of(1)


@pytest.mark.parametrize("rows", [1, 3, ROWS_MAX + 5])
def test_each_error_of_a_response_counts_up_to_a_bound(rows: int) -> None:
    row = ProduceResponsePartition(error_code=3)
    response = ProduceResponse(responses=[ProduceResponseTopic(name="t", partition_responses=[row] * rows)])
    for counters in (ApiCounters(ProduceResponse), ApiCounters()):
        counters.count_errors(response)
        assert counters.errors == {3: min(rows, ROWS_MAX)}


def test_errors_of_partitions_of_a_transaction_count() -> None:
    counters = ApiCounters(AddPartitionsToTxnResponse)
    row = AddPartitionsToTxnResponsePartition(partition_error_code=53)
    topic = AddPartitionsToTxnResponseTopic(name="t", results_by_partition=[row, row])
    counters.count_errors(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]))
    assert counters.errors == {53: 2}


def test_arrays_that_are_encoded_or_missing_are_passed_over() -> None:
    counters = ApiCounters(OffsetCommitResponse)
    for rows in (None, Encoded((b"12",)), [], [OffsetCommitResponsePartition(error_code=7)] * (ROWS_MAX + 5)):
        topic = OffsetCommitResponseTopic(name="t", partitions=rows)  # type: ignore[arg-type]
        counters.count_errors(OffsetCommitResponse(topics=[topic]))
    assert counters.errors == {7: ROWS_MAX}


@pytest.mark.parametrize("module", REPLACED)
def test_the_bench_finds_every_line_that_counts(module: str) -> None:
    compile(uncounted(module), module, "exec")
