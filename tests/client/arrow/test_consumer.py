"""The Consumer's tables: the records from its positions to the ends of the moment, consumed as those of `getmany`."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from client.consuming import produce, take, tp
from semel import Admin, Consumer, NewTopic, Producer
from semel._arrow.decode import SCHEMA
from semel.errors import ConsumerStoppedError, RecordDeserializationError
from semel.serializers import JsonDeserializer, LongDeserializer


class Measured(msgspec.Struct):
    x: int
    y: float | None = None


async def two_partitions(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2)])


def numbered(first: int, after: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, after)]


def consumer(bootstrap: str, *topics: str, **settings: Any) -> Consumer[Any, Any]:
    return Consumer(*topics, bootstrap_servers=bootstrap, **{"auto_offset_reset": "earliest", **settings})


async def test_a_table_has_the_records_up_to_the_ends_and_the_next_one_those_that_came_after(bootstrap: str) -> None:
    await two_partitions(bootstrap)
    await produce(bootstrap, numbered(0, 20))
    await produce(bootstrap, numbered(100, 110), partition=1)
    async with consumer(bootstrap, "t") as one:
        first = await one.to_arrow()
        assert first.schema == SCHEMA
        first.validate(full=True)
        assert sorted(first["value"].to_pylist()) == sorted(numbered(0, 20) + numbered(100, 110))
        assert (await one.to_arrow()).to_pylist() == []
        await produce(bootstrap, numbered(20, 25))
        assert (await one.to_arrow())["offset"].to_pylist() == [20, 21, 22, 23, 24]


async def test_the_fields_are_those_of_the_records(bootstrap: str) -> None:
    headers = [("h", b"1"), ("i", None), ("caf\udce9", b"")]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("t", b"v", key=b"k", partition=0, timestamp_ms=1234, headers=headers)
        await producer.send_and_wait("t", None, partition=0, timestamp_ms=5)
    async with consumer(bootstrap, "t") as one:
        table = await one.to_arrow()
        table = table.set_column(3, "timestamp", table["timestamp"].cast(pa.int64()))
        place = {"topic": "t", "partition": 0, "timestamp_type": 0}
        names = [("h", b"1"), ("i", None), ("caf\ufffd", b"")]
        assert table.to_pylist() == [
            {
                **place, "offset": 0, "timestamp": 1234, "key": b"k", "value": b"v",
                "headers": [{"key": key, "value": value} for key, value in names],
            },
            {**place, "offset": 1, "timestamp": 5, "key": None, "value": None, "headers": []},
        ]  # fmt: skip


async def test_aborted_records_are_left_out_and_markers_do_not_hold_it_up(bootstrap: str) -> None:
    await produce(bootstrap, [b"a"])
    async with Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"aborted", partition=0)
        await producer.flush()
        await producer.abort_transaction()
    async with consumer(bootstrap, "t", isolation_level="read_committed") as one:
        assert (await one.to_arrow())["value"].to_pylist() == [b"a"]
        assert await one.position(tp(0)) == 3


async def test_records_beyond_the_ends_are_handed_out_later(bootstrap: str) -> None:
    await produce(bootstrap, numbered(0, 10))
    async with consumer(bootstrap) as one:
        one.assign([tp(0)])
        end_offsets = one.end_offsets

        async def ends_before_five_more(partitions: Any) -> Any:
            ends = await end_offsets(partitions)
            await produce(bootstrap, numbered(10, 15))
            return ends

        one.end_offsets = ends_before_five_more  # type: ignore[method-assign]
        assert (await one.to_arrow())["value"].to_pylist() == numbered(0, 10)
        assert [record.value for record in await take(one, 5)] == numbered(10, 15)


async def test_a_loop_that_ends_early_loses_no_record(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.consumer.ARROW_ROWS", 7)
    await two_partitions(bootstrap)
    for partition in range(2):
        await produce(bootstrap, numbered(0, 20), partition=partition)
    async with consumer(bootstrap, "t") as one:
        seen = []
        async for batch in one.arrow_batches():
            assert 0 < batch.num_rows <= 7
            seen += batch["value"].to_pylist()
            if len(seen) > 15:
                break
        seen += [record.value for record in await take(one, 40 - len(seen))]
        assert sorted(seen) == sorted(numbered(0, 20) * 2)


async def test_the_last_batch_is_consumed_when_more_is_asked_for(bootstrap: str) -> None:
    await produce(bootstrap, numbered(0, 10))
    settings = {"group_id": "g", "enable_auto_commit": False}
    async with consumer(bootstrap, "t", **settings) as one:
        assert (await one.to_arrow()).num_rows == 10
        await one.commit()
    async with consumer(bootstrap, "t", **settings) as one:
        assert (await one.to_arrow()).num_rows == 0


async def test_partitions_are_chosen_and_paused_ones_left_out(bootstrap: str) -> None:
    await two_partitions(bootstrap)
    for partition in range(2):
        await produce(bootstrap, [b"%d" % partition], partition=partition)
    async with consumer(bootstrap) as one:
        one.assign([tp(0), tp(1)])
        assert (await one.to_arrow(tp(1)))["value"].to_pylist() == [b"1"]
        one.pause(tp(0))
        assert (await one.to_arrow()).num_rows == 0
        one.resume(tp(0))
        assert (await one.to_arrow())["value"].to_pylist() == [b"0"]
    with pytest.raises(ConsumerStoppedError):
        await one.to_arrow()


async def test_deserialized_values_are_typed_columns(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("t", b'{"x": 1, "y": 2}', key=(7).to_bytes(8, "big"), partition=0)
    async with consumer(
        bootstrap, "t", key_deserializer=LongDeserializer(), value_deserializer=JsonDeserializer(Measured)
    ) as one:
        table = await one.to_arrow()
        assert table.schema.field("key").type == pa.int64()
        assert table.schema.field("value").type == pa.struct([("x", pa.int64()), ("y", pa.float64())])
        assert table.select(["key", "value"]).to_pylist() == [{"key": 7, "value": {"x": 1, "y": 2.0}}]


async def test_values_that_do_not_fit_stay_to_be_read_with_another_schema(bootstrap: str) -> None:
    await produce(bootstrap, [b'{"x": 1}', b'{"x": "one"}'])
    async with consumer(bootstrap, "t", value_deserializer=JsonDeserializer[Any]()) as one:
        with pytest.raises(ValueError, match="Give value_schema="):
            await one.to_arrow()
        table = await one.to_arrow(value_schema=pa.schema([("z", pa.string())]))
        assert table["value"].to_pylist() == [{"z": None}, {"z": None}]


async def test_a_value_that_cannot_be_read_is_named(bootstrap: str) -> None:
    await produce(bootstrap, [b'{"x": 1}', b"no"])
    async with consumer(bootstrap, "t", value_deserializer=JsonDeserializer(Measured)) as one:
        with pytest.raises(RecordDeserializationError, match="t-0 at offset 1"):
            await one.to_arrow()
