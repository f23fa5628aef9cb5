"""eos-step, torn-txn and fence-violation of transaction groups."""

from __future__ import annotations

from sim.checkers.telling import T0, T1, Tale
from sim.history import Witness

GROUP = "g"


class Batches(Tale):
    """Batches of two rows each, one for each of two tasks, committed by a driver."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.driver = self.witness("driver")
        for number in range(count):
            self.driver.planned(GROUP, f"b{number}", [f"b{number}/0.0", f"b{number}/1.0"])

    def step(self, epoch: int, decided: str | None = None, *, who: Witness | None = None) -> None:
        since_ms = self.history.now_ms()
        (who or self.driver).step_begun(GROUP, epoch, since_ms=since_ms, decided_token=decided)

    def attempts(self, epoch: int, token: str, offset: int) -> list[int]:
        """Of both tasks, in partitions 0 and 1, at this offset."""
        txns = []
        for task in (0, 1):
            worker = self.witness(f"worker{task}")
            txn = worker.beginning(f"{GROUP}/{task}")
            value = f"{token}-{task}-{epoch}"
            self.send(worker, value, offset, partition=task, txn=txn, made_from=f"{token}/{task}.0")
            txns.append(txn)
        return txns

    def commit(
        self, epoch: int, token: str, txns: list[int], *, heard: bool | None = True, who: Witness | None = None
    ) -> None:
        who = who or self.driver
        op = who.deciding(GROUP, epoch, token, txns)
        if heard is not None:
            who.decided(op, is_ours=heard)
        for txn in txns if heard is not None else ():
            (who.committed if heard else who.aborted)(txn)

    def there(self, *tokens: str, missing: str = "") -> None:
        """What readers of committed records get: batches with the step they were committed in, as `b0-1`."""
        for task, place in ((0, T0), (1, T1)):
            values = [f"{token.replace('-', f'-{task}-')}" for token in tokens]
            self.ends([(at, value) for at, value in enumerate(values) if value != missing], place=place)


def whole() -> Batches:
    tale = Batches()
    tale.step(1)
    tale.commit(1, "b0", tale.attempts(1, "b0", 0))
    tale.step(2, "b0")
    tale.commit(2, "b1", tale.attempts(2, "b1", 1))
    return tale


def test_batches_that_are_there_once_and_in_order_are_right() -> None:
    tale = whole()
    tale.there("b0-1", "b1-2")
    assert tale.found() == []


def test_a_committed_batch_without_one_of_its_rows_is_torn() -> None:
    tale = whole()
    tale.there("b0-1", "b1-2", missing="b1-1-2")
    assert {"eos-step", "torn-txn"} <= set(tale.found())


def test_a_batch_nobody_heard_of_is_there_whole_or_not_at_all() -> None:
    cases: list[tuple[list[str], list[str]]] = [(["b0-1"], []), ([], [])]
    for there, expected in cases:
        tale = Batches(1)
        tale.step(1)
        tale.commit(1, "b0", tale.attempts(1, "b0", 0), heard=None)
        tale.there(*there)
        assert [name for name in tale.found() if name not in ("unseen", "lost-write")] == expected
    tale.there("b0-1", missing="b0-1-1")
    assert {"eos-step", "torn-txn"} <= set(tale.found()), "one decision is about both"


def test_a_row_that_is_there_twice_is_found() -> None:
    tale = Batches(1)
    tale.step(1)
    tale.commit(1, "b0", tale.attempts(1, "b0", 0), heard=None)
    tale.step(2)
    tale.commit(2, "b0", tale.attempts(2, "b0", 1))
    tale.there("b0-1", "b0-2")
    assert "eos-step" in tale.found()


def test_an_attempt_that_nobody_has_listed_is_not_there() -> None:
    tale = Batches(1)
    tale.step(1)
    tale.attempts(1, "b0", 0)
    tale.there("b0-1")
    assert tale.found() == ["aborted-read", "eos-step"]


def test_a_step_is_not_committed_when_an_earlier_one_was_as_the_same_token() -> None:
    tale = Batches(1)
    tale.step(1)
    tale.commit(1, "b0", tale.attempts(1, "b0", 0))
    tale.step(2, "b0")
    tale.commit(2, "b0", tale.attempts(2, "b0", 1), heard=False)
    tale.there("b0-1")
    for place, value in ((T0, "b0-0-2"), (T1, "b0-1-2")):
        tale.ends([(0, value.removesuffix("2") + "1")], aborted=[(1, value)], place=place)
    assert tale.found() == []
    tale.there("b0-1", "b0-2")
    assert {"aborted-read", "eos-step"} <= set(tale.found())


def test_batches_out_of_their_order_are_found() -> None:
    tale = whole()
    tale.there("b1-2", "b0-1")
    assert "eos-step" in tale.found()
    tale = Batches()
    tale.step(1)
    tale.commit(1, "b1", tale.attempts(1, "b1", 0))
    tale.there("b1-1")
    assert tale.found() == ["eos-step"], "b0 was left out"


def test_a_coordinator_that_forgets_is_found() -> None:
    for epoch, decided in ((1, "b0"), (2, None), (1, None)):
        tale = Batches(1)
        tale.step(1)
        tale.commit(1, "b0", tale.attempts(1, "b0", 0))
        tale.step(epoch, decided)
        tale.there("b0-1")
        assert tale.found() == ["eos-step"], (epoch, decided)


def test_a_driver_whose_step_is_over_commits_nothing() -> None:
    tale = Batches(1)
    tale.step(1)
    txns = tale.attempts(1, "b0", 0)
    tale.step(2, who=tale.witness("deputy"))
    tale.commit(1, "b0", txns)
    tale.there("b0-1")
    assert tale.found() == ["fence-violation"]


def test_a_commit_that_was_asked_for_before_the_next_step_began_may_be_heard_of_later() -> None:
    tale = Batches(1)
    tale.step(1)
    txns = tale.attempts(1, "b0", 0)
    op = tale.driver.deciding(GROUP, 1, "b0", txns)
    tale.step(2, "b0", who=tale.witness("deputy"))
    tale.driver.decided(op, is_ours=True)
    for txn in txns:
        tale.driver.committed(txn)
    tale.there("b0-1")
    assert tale.found() == []
