"""The broker of the fixture keeps real clocks while a test freezes time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from time import time_ns
from typing import Any

import pytest
from semel_broker.testing import in_process
from semel_broker.testing.in_process import EphemeralBroker
from semel_broker.testing.real_clocks import RealTimeLoop, now_ms

pytestmark = pytest.mark.real_time
THEN = datetime(2020, 1, 1, tzinfo=UTC)
PATIENCE_S = 20


def _freezegun() -> Any:
    return pytest.importorskip("freezegun").freeze_time(THEN)


def _time_machine() -> Any:
    return pytest.importorskip("time_machine").travel(THEN, tick=False)


@pytest.fixture(params=[_freezegun, _time_machine], ids=["freezegun", "time-machine"])
def frozen(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Any]]:
    found: Callable[[], AbstractContextManager[Any]] = request.param
    return found


@pytest.fixture(params=["loop of the fixture", "loop of asyncio"])
def _each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "loop of asyncio":
        monkeypatch.setattr(in_process, "_loop_factory", lambda: RealTimeLoop)


def _a_transaction_is_read(broker: EphemeralBroker) -> None:
    from confluent_kafka import Consumer, Producer

    at = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**at, "transactional.id": "shop"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"one kettle")
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer({**at, "group.id": "kitchen", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = consumer.poll(PATIENCE_S)
    assert found is not None
    assert found.value() == b"one kettle"
    consumer.close()


@pytest.mark.usefixtures("_each_loop")
def test_a_broker_that_runs_serves_while_time_is_frozen(frozen: Callable[[], AbstractContextManager[Any]]) -> None:
    with EphemeralBroker() as broker, frozen():
        _a_transaction_is_read(broker)


@pytest.mark.usefixtures("_each_loop")
def test_a_broker_starts_while_time_is_frozen(frozen: Callable[[], AbstractContextManager[Any]]) -> None:
    with frozen():
        with EphemeralBroker() as broker:
            _a_transaction_is_read(broker)
        assert now_ms() > THEN.timestamp() * 1000 + 1e9


def test_the_clock_of_the_fixture_is_that_of_the_machine() -> None:
    assert abs(now_ms() - time_ns() // 1_000_000) < 60_000
