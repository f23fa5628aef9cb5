"""Elections under faults choose only allowed leaders and ISRs. With a safeguard off, a run finds an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from semel_broker.cluster import elections
from semel_broker.cluster.controller import Controller
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.etcd.session import EtcdSession
from semel_broker.cluster.image import PartitionView
from semel_broker.cluster.records import PartitionState
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.steps import Step
from support.tiers import tiered

from sim import alone
from sim.control import ControlRun
from sim.topic_control import TopicRun

TRIES_MAX = 40


@pytest.mark.parametrize(
    ("kind", "first", "count"),
    tiered(
        [
            *((ControlRun, first, 5) for first in range(0, 30, 5)),
            *((TopicRun, first, 2) for first in range(0, 12, 2)),
        ],
        lambda run: run[1] == 0,
    ),
)
def test_nothing_is_found(kind: type[ControlRun], first: int, count: int) -> None:
    found = {seed: kind(seed).execute() for seed in range(first, first + count)}
    assert not any(found.values()), found


@pytest.mark.parametrize("kind", [ControlRun, TopicRun])
def test_the_same_seed_is_the_same_run(kind: type[ControlRun]) -> None:
    digests = []
    for _ in range(2):
        run = kind(7)
        assert run.execute() == []
        digests.append(run.world.digest())
    assert digests[0] == digests[1]


def test_one_seed_has_a_transcript_and_many_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sim.alone", "elections", "--seed", "3"])
    assert alone.main() == 0
    told = capsys.readouterr().out
    assert "controller_elected" in told
    assert told.endswith(": clean\n")
    monkeypatch.setattr("sys.argv", ["sim.alone", "elections", "--seeds", "2", "--first", "5", "--jobs", "1"])
    assert alone.main() == 0
    assert capsys.readouterr().out == "2 seeds from 5: 0 failed\n"


def hasty(self: Controller) -> Sequence[Step]:
    """Admit brokers before their former state is handled."""
    brokers = BrokerStates.of(self._feed.image)
    return [*self._admit(brokers), *self._settle(brokers)]


def careless(view: PartitionView, brokers: BrokerStates) -> PartitionState:
    """Elect any live replica."""
    state = view.state
    live = [node_id for node_id in view.replicas if node_id in brokers.live]
    if state.leader in live or not live:
        return state
    return PartitionState(live[0], state.leader_epoch + 1, live)


def faithful(self: Registration) -> bool:
    """A registration is valid until the store reports its end."""
    return self._admitted is not None and not self._admitted._ended.is_set()  # type: ignore[attr-defined]


def late(self: EtcdSession) -> float:
    """Count the deadline from the answer of a keep-alive, not from its sending."""
    return self._deadline + 1.5


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        (Controller, "_decide", hasty),
        (elections, "settled", careless),
        pytest.param(Registration, "is_valid", faithful, marks=pytest.mark.thorough),
        (EtcdSession, "deadline", property(late)),
    ],
    ids=["admission last", "leaders from the ISR", "the deadline", "counted from before"],
)
def test_a_safeguard_that_is_off_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, replacement: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, replacement)
    if owner is EtcdSession:
        monkeypatch.setattr(EtcdSession, "has_ended", property(lambda self: self._world.monotonic() >= late(self)))
    assert any(ControlRun(seed).execute() for seed in range(TRIES_MAX))
