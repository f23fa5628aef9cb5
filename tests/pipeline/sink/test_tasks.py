"""Tasks and driver of the sink without Spark: every order of attempts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pipeline.queries import committed
from pyspark_semel.event_loop import event_loop, run
from pyspark_semel.sink import driver
from pyspark_semel.sink.identity import load_step, save_step
from pyspark_semel.sink.options import SinkOptions, sink_options
from pyspark_semel.sink.producers import IDLE_MAX, IdleProducers
from pyspark_semel.sink.schema import SinkSchema
from pyspark_semel.sink.task import Written, write_at_least_once, write_exactly_once
from semel import Admin, GroupStep, Producer
from semel.errors import KafkaConnectionError, KafkaError, ProducerFenced
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.semel_only("the sink is exactly once by transaction groups (BeginTransactionGroup, API 20001)")

SCHEMA = SinkSchema(value=0)


@pytest.fixture
def options(semel_broker: EphemeralBroker) -> SinkOptions:
    servers = semel_broker.bootstrap_servers
    return sink_options({"kafka.bootstrap.servers": servers, "topic": "t", "semel.sink.id": "s"}, streaming=True)


def test_an_address_without_a_broker_is_reported_with_the_option_for_a_longer_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    given = {"kafka.bootstrap.servers": address, "topic": "t", "kafka.bootstrap.timeout.ms": "50"}
    with pytest.raises(KafkaConnectionError, match=r"within 50 ms.* raise kafka\.bootstrap\.timeout\.ms$"):
        driver.begin(sink_options(given, streaming=False), "generated")


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(values, pa.string())})])


def failing(*values: str) -> Iterator[pa.RecordBatch]:
    yield from rows(*values)
    raise RuntimeError("as the test has asked for")


def write(options: SinkOptions, step: GroupStep, token: str, *values: str) -> Written:
    return write_exactly_once(rows(*values), options, SCHEMA, step, token)


def visible(options: SinkOptions) -> list[str]:
    address = str(options.settings.values["bootstrap_servers"])
    return sorted((record.value or b"").decode() for record in committed(address, "t"))


def test_only_transactions_in_the_messages_become_visible(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    first, twin, other = (write(options, step, "q:0", *values) for values in (("a", "b"), ("a", "b"), ("c",)))
    ids = [each.transaction.transactional_id for each in (first, twin, other) if each.transaction is not None]
    assert len(set(ids)) == 3, "a name is used once in a step"
    driver.commit(options, [twin, other])
    assert visible(options) == ["a", "b", "c"]
    step = driver.begin(options, "s")
    assert (step.decided_token, step.epoch) == ("q:0", 2)
    again = write(options, step, "q:1", "d")
    assert again.transaction is not None
    assert again.transaction.transactional_id in ids, "connections and names are kept for the next step"


def test_a_late_attempt_is_refused(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    driver.commit(options, [write(options, step, "q:0", "a")])
    with pytest.raises(ProducerFenced):
        write(options, step, "q:0", "late")
    driver.begin(options, "s")
    with pytest.raises(ProducerFenced, match="Spark driver of sink 's'"):
        write(options, step, "q:0", "later")
    assert visible(options) == ["a"]


def test_a_repeated_commit_changes_nothing(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    message = write(options, step, "q:0", "a")
    driver.commit(options, [message])
    driver.commit(options, [message])
    driver.abort(options, step)
    assert visible(options) == ["a"]


def test_a_replaced_driver_neither_commits_nor_aborts(options: SinkOptions) -> None:
    old = driver.begin(options, "s")
    message = write(options, old, "q:0", "old")
    new = driver.begin(options, "s")
    kept = write(options, new, "q:0", "new")
    with pytest.raises(ProducerFenced, match=r"Spark driver of sink 's'.*Another driver writes to this sink"):
        driver.commit(options, [message])
    driver.abort(options, old)
    driver.commit(options, [kept])
    assert visible(options) == ["new"]


def test_an_aborted_step_refuses_members(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    message = write(options, step, "q:0", "a")
    driver.abort(options, step)
    with pytest.raises(KafkaError):
        driver.commit(options, [message])
    with pytest.raises(ProducerFenced):
        write(options, step, "q:0", "b")
    assert visible(options) == []


def test_a_task_without_rows_has_no_transaction_and_the_batch_commits(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    message = write_exactly_once(iter([]), options, SCHEMA, step, "q:7")
    assert (message.rows, message.transaction) == (0, None)
    driver.commit(options, [message])
    assert driver.begin(options, "s").decided_token == "q:7"


def test_the_transaction_of_a_failed_task_is_aborted_at_once(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    with pytest.raises(RuntimeError, match="as the test has asked for"):
        write_exactly_once(failing("a"), options, SCHEMA, step, "q:0")

    async def open_members() -> list[str]:
        async with Admin(bootstrap_servers=options.settings.values["bootstrap_servers"]) as admin:
            (group,) = await admin.describe_transaction_groups(["s"])
            return [member.transactional_id for member in group.members if member.is_open]

    assert asyncio.run(open_members()) == []
    driver.commit(options, [write(options, step, "q:0", "a")])
    assert visible(options) == ["a"]


def test_a_committed_batch_is_not_committed_again(options: SinkOptions) -> None:
    step = driver.begin(options, "s")
    driver.commit(options, [write(options, step, "q:0", "a")])
    step = driver.begin(options, "s")
    driver.commit(options, [Written(0, step, "q:0", skipped=True)])
    assert visible(options) == ["a"]


def test_at_least_once_raises_the_error_of_an_unstored_batch(options: SinkOptions) -> None:
    assert write_at_least_once(rows("a", "b"), options, SCHEMA).rows == 2
    with pytest.raises(RuntimeError, match="as the test has asked for"):
        write_at_least_once(failing("c"), options, SCHEMA)
    large = "x" * 1_100_000
    with pytest.raises(KafkaError, match=r"max_request_size|max\.message\.bytes"):
        write_at_least_once(rows(large), options, SCHEMA)
    assert {"a", "b"} <= set(visible(options))


def test_the_producers_used_last_are_kept() -> None:
    idle = IdleProducers()
    producers = [Producer() for _ in range(IDLE_MAX + 1)]
    place, other = ((("a", "b"),), "g"), ((("a", "b"),), "h")
    assert [idle.put(place, 3, each) for each in producers[:-1]] == [None] * IDLE_MAX
    assert idle.put(other, 3, producers[-1]) is producers[0]
    assert idle.take(place, 3) is None, "not twice in a step"
    assert idle.take(place, 4) is producers[1]
    assert idle.take(other, 4) is producers[-1]


def test_the_processes_of_a_driver_share_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    assert load_step("s") is None
    for epoch in (1, 2):
        save_step(GroupStep("s", epoch, None, -1))
    save_step(GroupStep("a/name with: everything", 5, "q:1", 4))
    assert load_step("s") == GroupStep("s", 2, None, -1)
    assert load_step("a/name with: everything") == GroupStep("a/name with: everything", 5, "q:1", 4)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "another driver's"))
    save_step(GroupStep("s", 9, None, -1))
    assert load_step("s") is None


def test_a_process_has_one_event_loop() -> None:
    async def mine() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert run(mine()) is event_loop()
