"""bad-election, on stores made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from semel_broker.cluster.records import Admission, BrokerRecord, PartitionState, TopicRecord

from sim.checkers.elections import Register
from sim.checkers.telling import Tale
from sim.final import Told

STATE = "partitions/id/0"


class Book:
    """What a store is told: a topic of three replicas, and three brokers that are there."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        for node_id in (1, 2, 3):
            self.broker(node_id)
        self.writes({"topics/t": TopicRecord("t", "id", [[1, 2, 3]], {})})

    def writes(self, changes: dict[str, Any]) -> int:
        revision = (self.told[-1].revision if self.told else 0) + 1
        for key, value in changes.items():
            self.told.append(Told(revision, key, None if value is None else msgspec.json.encode(value)))
        return revision

    def broker(self, node_id: int) -> None:
        record = BrokerRecord(node_id=node_id, incarnation="i", directory_id="d", host="h", port=1)
        self.admit(node_id, self.writes({f"brokers/{node_id}": record}))

    def admit(self, node_id: int, epoch: int) -> None:
        self.writes({f"admissions/{node_id}": Admission(epoch)})

    def dies(self, node_id: int) -> None:
        self.writes({f"brokers/{node_id}": None})

    def state(self, leader: int, epoch: int, *isr: int) -> None:
        self.writes({STATE: PartitionState(leader, epoch, list(isr))})

    def wrong(self) -> list[str]:
        return list(Register().read(self.told))


def test_elections_shrinking_growing_and_standing_empty_are_fine() -> None:
    book = Book()
    book.state(1, 0, 1, 2)
    book.state(1, 0, 1, 2, 3)
    book.dies(1)
    book.state(2, 1, 2, 3)
    book.dies(3)
    book.state(2, 1, 2)
    book.dies(2)
    book.state(-1, 2, 2)
    book.broker(1)
    book.broker(2)
    book.state(2, 3, 2)
    book.state(2, 3, 2, 1)
    assert book.wrong() == []


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
def test_a_state_that_must_not_be_is_found(state: tuple[int, ...], words: str) -> None:
    book = Book()
    book.state(*state)
    assert any(words in what for what in book.wrong()), book.wrong()


def test_who_was_not_in_sync_does_not_lead() -> None:
    book = Book()
    book.state(1, 0, 1, 2)
    book.state(3, 1, 3)
    assert any("had not been in sync" in what for what in book.wrong())


def test_who_is_not_there_neither_leads_nor_comes_to_be_in_sync() -> None:
    book = Book()
    book.dies(2)
    book.state(2, 1, 2, 3)
    assert any("who was elected is not there" in what for what in book.wrong())
    book = Book()
    book.state(1, 0, 1)
    book.dies(3)
    book.state(1, 0, 1, 3)
    assert any("3 came to be in sync and is not there" in what for what in book.wrong())


def test_who_comes_back_is_taken_out_of_what_it_was_first() -> None:
    book = Book()
    book.broker(2)
    assert any("2 was admitted" in what for what in book.wrong())
    book = Book()
    epoch = book.writes({"brokers/2": BrokerRecord(node_id=2, incarnation="j", directory_id="d", host="h", port=1)})
    book.state(1, 0, 1, 3)
    book.admit(2, epoch)
    assert book.wrong() == []


def test_a_partition_that_is_newer_than_who_comes_back_had_nothing_that_could_be_lost() -> None:
    book = Book()
    epoch = book.writes({"brokers/2": BrokerRecord(node_id=2, incarnation="j", directory_id="d", host="h", port=1)})
    book.state(1, 0, 1, 3)
    book.writes({"topics/t": TopicRecord("t", "id", [[1, 2, 3], [2, 3, 1]], {})})
    book.admit(2, epoch)
    assert book.wrong() == []


def test_the_checker_says_it() -> None:
    tale = Tale()
    tale.ends([])
    book = Book()
    book.state(2, 0, 1, 2, 3)
    tale.final.store = book.told
    assert tale.found() == ["bad-election"]
