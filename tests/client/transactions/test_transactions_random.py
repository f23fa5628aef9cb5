"""Requests get lost, delayed or refused; readers find the outcomes that the producer got."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client.fake_broker import ANSWER_LOST, LATE, LOST, QUICK, WORKS
from client.fake_coordinator import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END,
    INIT,
    ONGOING,
    TXN_OFFSETS,
    FakeCoordinator,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from semel import Producer, TopicPartition
from semel.errors import KafkaError, KafkaTimeoutError, TransactionWasCommitted
from semel_protocol.errors import ErrorCode

ON_THE_WAY = [WORKS, LOST, ANSWER_LOST, LATE]
REFUSALS = [int(ErrorCode.INVALID_RECORD), int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
RETRIABLE = [int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.CONCURRENT_TRANSACTIONS)]
COORDINATION = (INIT, ADD_PARTITIONS, ADD_OFFSETS, TXN_OFFSETS, END)
POSITIONS = TopicPartition("in", 0)


async def transact(made: Producer, number: int, size: int, abort: bool) -> list[bytes]:
    """Run random transactions. Returns the values that are certainly committed; all others must not be."""
    values = [b"%d-%d" % (number, index) for index in range(size)]
    await made.begin_transaction()
    try:
        for index, value in enumerate(values):
            await made.send("t", value, partition=index % 2)
        await made.send_offsets_to_transaction({POSITIONS: number + 1}, "g")
        if abort:
            await made.abort_transaction()
            return []
        await made.commit_transaction()
        return values
    except KafkaTimeoutError:
        raise AssertionError("nothing here takes that long") from None
    except KafkaError:
        try:
            await made.abort_transaction()
        except TransactionWasCommitted:
            return values
        return []


@pytest.mark.parametrize("version", [1, 2])
@settings(max_examples=60, deadline=None)
@given(
    produce=st.lists(st.sampled_from(ON_THE_WAY + REFUSALS), max_size=12),
    coordination=st.dictionaries(
        st.sampled_from(COORDINATION), st.lists(st.sampled_from(ON_THE_WAY + RETRIABLE), max_size=6)
    ),
    aborts=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_exactly_the_committed_transactions_are_visible(
    version: int, produce: list[Any], coordination: dict[int, list[Any]], aborts: list[bool]
) -> None:
    async def run() -> None:
        async with FakeCoordinator(version, {"t": 2}) as broker:
            for key, faults in coordination.items():
                # An InitProducerId of its own that arrives late would fence the producer, as that of any other.
                broker.trouble[key].extend([WORKS, *faults] if key == INIT else faults)
            broker.faults.extend(produce)
            committed: list[bytes] = []
            last = None
            settings: dict[str, Any] = {"transactional_id": "x", "max_batch_size": 120, **QUICK}
            async with Producer(bootstrap_servers=broker.address, **settings) as made:
                for number, abort in enumerate(aborts):
                    values = await transact(made, number, 6, abort)
                    committed += values
                    last = number + 1 if values else last
            for partition in (0, 1):
                mine = [value for value in committed if int(value.split(b"-")[1]) % 2 == partition]
                assert broker.committed("t", partition) == mine
                assert broker.values(ONGOING, "t", partition) == []
            assert broker.committed_offsets.get(("g", *POSITIONS)) == last

    asyncio.run(run())
