"""A transactor notices that a transaction is committed, also if the call that commits it ends before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from semel.errors import KafkaTimeoutError, TransactionWasCommitted

from sim.disk import DiskWeather
from sim.events import Committed, Committing
from sim.network import NetworkWeather
from sim.plan import RunPlan
from sim.run import SimRun
from sim.workloads.plan import ClientPlan, Op, TopicPlan, WorkloadPlan
from sim.workloads.recording_producer import RecordingProducer
from sim.workloads.transactor import PLAIN, recover

MAX_BLOCK_MS = 1_000
SETTINGS: dict[str, Any] = {
    "transactional_id": "till",
    "max_block_ms": MAX_BLOCK_MS,
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 5_000,
    "transaction_timeout_ms": 10_000,
}


def test_a_transactor_whose_commits_all_take_longer_than_max_block_ms_can_write() -> None:
    client = ClientPlan(
        name="a-shop", role="transactor", settings=SETTINGS, ops=[Op(kind="txn", args={**PLAIN, "sends": []})]
    )
    workload = WorkloadPlan(
        kind="transactional", prefix="a-", topics=[TopicPlan(name="a-orders", partitions=1)], clients=[client]
    )
    run = SimRun(
        RunPlan(seed=1, workloads=[workload], network=NetworkWeather(), disk=DiskWeather(sync_ms=(300.0, 300.0)))
    )
    run.execute()
    run.world.close()
    assert (run.world.failures, run.final.undrained) == ([], [])
    began = {event.txn: event.at_ms for event in run.history.events if isinstance(event, Committing)}
    took_ms = [event.at_ms - began[event.txn] for event in run.history.events if isinstance(event, Committed)]
    assert len(took_ms) == 2, "the transaction of the script, which is empty, and the last one"
    assert took_ms[1] > MAX_BLOCK_MS


class StubProducer:
    """A producer of which no call ends in time, until a call learns the outcome of a commit that was sent."""

    def __init__(self, *, learns_at: str, outcome: Exception | None) -> None:
        self._transactions = SimpleNamespace(_commit_outcome=SimpleNamespace(commit=True))
        self._learns_at, self._outcome = learns_at, outcome

    async def commit_transaction(self) -> None:
        self._end("commit")

    async def abort_transaction(self) -> None:
        self._end("abort")

    def _end(self, call: str) -> None:
        if call != self._learns_at:
            raise KafkaTimeoutError("the outcome is not known")
        if self._outcome is not None:
            raise self._outcome


class StubRecorder:
    def __init__(self) -> None:
        self.recorded: list[str] = []

    def committed(self, _: int) -> None:
        self.recorded.append("committed")

    def aborted(self, _: int) -> None:
        self.recorded.append("aborted")


@pytest.mark.parametrize(
    ("learns_at", "outcome", "expected"),
    [
        ("commit", None, "committed"),
        ("abort", None, "aborted"),
        ("abort", TransactionWasCommitted("it is committed"), "committed"),
    ],
)
async def test_the_outcome_is_known_after_a_commit_that_timed_out(
    learns_at: str, outcome: Exception | None, expected: str
) -> None:
    recorder = StubRecorder()
    mine = SimpleNamespace(producer=StubProducer(learns_at=learns_at, outcome=outcome), recorder=recorder)
    error = KafkaTimeoutError("the outcome is not known")
    is_committed = await recover(cast(RecordingProducer, mine), 1, error, insists=True)
    assert ([expected], expected == "committed") == (recorder.recorded, is_committed)
