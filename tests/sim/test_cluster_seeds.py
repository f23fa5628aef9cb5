"""The first seeds of `make sim BROKERS=3`; `make test` runs two of them."""

from __future__ import annotations

import pytest
from semel import Producer
from support.tiers import tiered

from sim.client import SimEdge
from sim.ending import FinalReading
from sim.host import Host
from sim.plan import draw
from sim.run import execute, run

SEEDS = 30
STEP = 2
BROKERS = 3


def check(first: int) -> None:
    found = []
    for seed in range(first, first + STEP):
        verdict = run(draw(seed, brokers=BROKERS))
        if not verdict.is_clean:
            found += [f"make sim BROKERS=3 SEED={seed}", *map(str, verdict.anomalies[:3]), *verdict.failures[:2]]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("first", tiered(range(0, SEEDS, STEP), lambda first: first < STEP))
def test_nothing_is_found(first: int) -> None:
    check(first)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (run(draw(3, brokers=BROKERS)) for _ in range(2))
    assert first.digest == second.digest
    assert first.simulated_s > 10


def test_replicas_are_compared_after_the_last_record_is_committed_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class InterruptedReading(FinalReading):
        """A record is written after the reading, for example by a coordinator whose member has expired."""

        async def main(self, host: Host) -> None:
            await super().main(host)
            async with Producer(bootstrap_servers=self._address, edge=SimEdge(host)) as producer:
                topic, partition = next(iter(self.final.partitions))
                await producer.send_and_wait(topic, b"last words", key=b"k0", partition=partition)

    monkeypatch.setattr("sim.run.FinalReading", InterruptedReading)
    verdict, executed = execute(draw(2, brokers=BROKERS))
    place, end = next(iter(executed.final.partitions.items()))
    replicas = executed.final.replicas[place]
    assert [replica.high_watermark for replica in replicas] == [end.high_watermark + 1] * BROKERS
    assert verdict.is_clean, (verdict.anomalies, verdict.failures)


def test_checkers_get_all_writes_of_the_store() -> None:
    _, executed = execute(draw(2, brokers=BROKERS))
    kinds = {told.key.partition("/")[0] for told in executed.final.store}
    assert {"topics", "brokers", "admissions", "partitions"} <= kinds
    assert executed.commitment is not None
    assert executed.commitment.watched
