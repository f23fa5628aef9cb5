"""unauthorized, false-refusal."""

from __future__ import annotations

import pytest

from sim.checkers.history_builder import HistoryBuilder
from sim.events import NO_TXN
from sim.history import Recorder

REFUSED = "[29 TOPIC_AUTHORIZATION_FAILED] produce to t-0"


class Denied:
    """A right of host "shop" that is denied: step by step."""

    def __init__(self, builder: HistoryBuilder, what: str, name: str) -> None:
        builder.history.has_followers = False
        self._recorder, self._what, self._name = builder.recorder("rights"), what, name

    def comes(self, stage: str) -> None:
        self._recorder.right_changed("shop", self._what, self._name, stage)

    def begins(self) -> None:
        self.comes("taking")
        self.comes("taken")

    def ends(self) -> None:
        self.comes("giving back")
        self.comes("given back")


def test_a_record_sent_and_stored_while_its_right_is_denied_is_unauthorized() -> None:
    builder = HistoryBuilder()
    Denied(builder, "write topic", "t").begins()
    builder.send(builder.recorder("shop-eye"), "a", 0)
    builder.ends([(0, "a")])
    assert builder.found() == ["unauthorized"]


@pytest.mark.parametrize(("client", "topic"), [("other", "t"), ("shop", "u"), ("shop2", "t")])
def test_other_clients_and_other_topics_are_not_concerned(client: str, topic: str) -> None:
    builder = HistoryBuilder()
    Denied(builder, "write topic", topic).begins()
    builder.send(builder.recorder(client), "a", 0)
    builder.ends([(0, "a")])
    assert builder.found() == []


def test_a_record_sent_before_or_answered_after_the_denial_may_be_stored() -> None:
    builder = HistoryBuilder()
    denied, shop = Denied(builder, "write topic", "t"), builder.recorder("shop")
    early = builder.send(shop, "a")
    denied.begins()
    shop.stored(early, 0, 0)
    late = builder.send(shop, "b")
    denied.ends()
    shop.stored(late, 0, 1)
    builder.ends([(0, "a"), (1, "b")])
    assert builder.found() == []


def test_several_brokers_have_time_to_follow() -> None:
    builder = HistoryBuilder()
    denied = Denied(builder, "write topic", "t")
    builder.history.has_followers = True
    denied.begins()
    builder.send(builder.recorder("shop"), "a", 0)
    builder.ends([(0, "a")])
    assert builder.found() == []
    builder.clock_ms += 10_000
    builder.send(builder.recorder("shop"), "b", 1)
    builder.ends([(0, "a"), (1, "b")])
    assert builder.found() == ["unauthorized"]


def test_a_reader_without_the_right_gets_no_record_that_is_sent_later() -> None:
    builder = HistoryBuilder()
    other, reader = builder.recorder("other"), builder.consumer("shop", read_committed=False)
    reader.assigned([("t", 0)], positions=[0])
    builder.send(other, "a", 0)
    Denied(builder, "read topic", "t").begins()
    reader.polled(("t", 0), [0], ["a"])  # perhaps it was fetched before
    builder.ends([(0, "a")])
    assert builder.found() == []
    builder.send(other, "b", 1)
    reader.polled(("t", 0), [1], ["b"])
    builder.ends([(0, "a"), (1, "b")])
    assert builder.found() == ["unauthorized"]


def test_a_commit_without_the_right_to_the_transactional_id_is_unauthorized() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    txn = shop.beginning("till")
    builder.send(shop, "a", 0, txn=txn)
    Denied(builder, "write transactional id", "till").begins()
    shop.committing(txn)
    shop.committed(txn)
    builder.ends([(0, "a")])
    assert builder.found() == ["unauthorized"]


def test_offsets_committed_without_the_right_to_the_group_are_unauthorized() -> None:
    builder = HistoryBuilder()
    shop = builder.consumer("shop", group="g")
    Denied(builder, "read group", "g").begins()
    shop.offsets_committed(shop.committing_offsets("g", {("t", 0): 1}, txn=NO_TXN))
    assert "unauthorized" in builder.found()


def refused(shop: Recorder, builder: HistoryBuilder) -> None:
    shop.not_stored(builder.send(shop, "a"), REFUSED)


def test_a_refusal_needs_a_denial_at_that_time() -> None:
    builder = HistoryBuilder()
    refused(builder.recorder("shop"), builder)
    assert builder.found() == ["false-refusal"]
    builder = HistoryBuilder()
    Denied(builder, "write topic", "t").comes("taking")
    refused(builder.recorder("shop"), builder)
    assert builder.found() == []
    builder = HistoryBuilder()
    denied = Denied(builder, "write topic", "t")
    denied.begins()
    denied.ends()
    refused(builder.recorder("shop"), builder)
    assert builder.found() == ["false-refusal"]
