"""Failures that repeat are logged once, then every ten seconds."""

from __future__ import annotations

import asyncio
import logging

import pytest
from client.fake_broker import FakeBroker
from semel._config.client import ClientConfig
from semel._edge import Edge
from semel._net.cluster import Cluster
from semel._net.outage import Outage


class SetClock(Edge):
    at = 0.0

    def monotonic(self) -> float:
        return self.at


def test_the_first_failure_is_due_and_then_one_every_ten_seconds() -> None:
    edge = SetClock()
    outage = Outage(edge)
    due = []
    for edge.at in range(25):
        if outage.is_due():
            due.append(edge.at)
    assert due == [0, 10, 20]


def test_a_failure_after_a_success_is_due_at_once() -> None:
    edge = SetClock()
    outage = Outage(edge)
    assert outage.is_due()
    assert not outage.is_due()
    outage.end()
    assert outage.is_due()


async def test_a_broker_that_is_away_causes_one_warning_every_ten_seconds(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=fake_broker.address, client_id="counter"))
    await cluster.start()
    await fake_broker.close()
    cluster.request_refresh()
    await asyncio.sleep(25)
    warnings = [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]
    assert len(warnings) == 3
    assert all(each.startswith("client 'counter': cannot refresh the metadata, trying again: ") for each in warnings)
    await cluster.stop()
