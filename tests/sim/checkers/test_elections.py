"""bad-election, on store contents made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from semel_broker.cluster.records import BrokerAdmission, BrokerRecord, PartitionState, TopicRecord

from sim.checkers.elections import Register
from sim.checkers.history_builder import HistoryBuilder
from sim.final import StoreWrite

STATE = "partitions/id/0"


class StoreWrites:
    """The writes to a store: a topic of three replicas, and three live brokers."""

    def __init__(self) -> None:
        self.written: list[StoreWrite] = []
        for node_id in (1, 2, 3):
            self.broker(node_id)
        self.writes({"topics/t": TopicRecord("t", "id", [[1, 2, 3]], {})})

    def writes(self, changes: dict[str, Any]) -> int:
        revision = (self.written[-1].revision if self.written else 0) + 1
        for key, value in changes.items():
            self.written.append(StoreWrite(revision, key, None if value is None else msgspec.json.encode(value)))
        return revision

    def broker(self, node_id: int) -> None:
        record = BrokerRecord(node_id=node_id, incarnation="i", directory_id="d", host="h", port=1)
        self.admit(node_id, self.writes({f"brokers/{node_id}": record}))

    def admit(self, node_id: int, epoch: int) -> None:
        self.writes({f"admissions/{node_id}": BrokerAdmission(epoch)})

    def dies(self, node_id: int) -> None:
        self.writes({f"brokers/{node_id}": None})

    def state(self, leader: int, epoch: int, *isr: int) -> None:
        self.writes({STATE: PartitionState(leader, epoch, list(isr))})

    def wrong(self) -> list[str]:
        return list(Register().read(self.written))


def test_elections_and_isr_changes_by_the_rules_are_fine() -> None:
    store = StoreWrites()
    store.state(1, 0, 1, 2)
    store.state(1, 0, 1, 2, 3)
    store.dies(1)
    store.state(2, 1, 2, 3)
    store.dies(3)
    store.state(2, 1, 2)
    store.dies(2)
    store.state(-1, 2, 2)
    store.broker(1)
    store.broker(2)
    store.state(2, 3, 2)
    store.state(2, 3, 2, 1)
    assert store.wrong() == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ((1, 0), "no ISR"),
        ((1, 0, 1, 1), "no ISR"),
        ((1, 0, 1, 4), "is not of"),
        ((2, 1, 1, 3), "is not in sync"),
        ((2, 0, 1, 2, 3), "another leader in one epoch"),
        ((2, 2, 1, 2, 3), "the epoch"),
    ],
)
def test_a_forbidden_state_is_found(state: tuple[int, ...], words: str) -> None:
    store = StoreWrites()
    store.state(*state)
    assert any(words in what for what in store.wrong()), store.wrong()


def test_a_leader_that_was_not_in_sync_is_found() -> None:
    store = StoreWrites()
    store.state(1, 0, 1, 2)
    store.state(3, 1, 3)
    assert any("was not in sync" in what for what in store.wrong())


def test_a_broker_that_is_not_live_neither_leads_nor_joins_the_isr() -> None:
    store = StoreWrites()
    store.dies(2)
    store.state(2, 1, 2, 3)
    assert any("the elected leader is not live" in what for what in store.wrong())
    store = StoreWrites()
    store.state(1, 0, 1)
    store.dies(3)
    store.state(1, 0, 1, 3)
    assert any("3 joined the ISR and is not live" in what for what in store.wrong())


def test_a_restarted_broker_leaves_its_isrs_before_it_is_admitted() -> None:
    store = StoreWrites()
    store.broker(2)
    assert any("2 was admitted" in what for what in store.wrong())
    store = StoreWrites()
    epoch = store.writes({"brokers/2": BrokerRecord(node_id=2, incarnation="j", directory_id="d", host="h", port=1)})
    store.state(1, 0, 1, 3)
    store.admit(2, epoch)
    assert store.wrong() == []


def test_a_restarted_broker_stays_in_sync_for_a_partition_newer_than_its_registration() -> None:
    store = StoreWrites()
    epoch = store.writes({"brokers/2": BrokerRecord(node_id=2, incarnation="j", directory_id="d", host="h", port=1)})
    store.state(1, 0, 1, 3)
    store.writes({"topics/t": TopicRecord("t", "id", [[1, 2, 3], [2, 3, 1]], {})})
    store.admit(2, epoch)
    assert store.wrong() == []


def test_the_checker_reports_a_bad_election() -> None:
    builder = HistoryBuilder()
    builder.ends([])
    store = StoreWrites()
    store.state(2, 0, 1, 2, 3)
    builder.final.store = store.written
    assert builder.found() == ["bad-election"]
