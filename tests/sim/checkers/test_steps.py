"""eos-step, torn-txn and fence-violation of transaction groups."""

from __future__ import annotations

from sim.checkers.history_builder import T0, T1, HistoryBuilder
from sim.history import Recorder

GROUP = "g"


class Batches(HistoryBuilder):
    """Batches of two rows each, one for each of two tasks, committed by a driver."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.driver = self.recorder("driver")
        for number in range(count):
            self.driver.planned(GROUP, f"b{number}", [f"b{number}/0.0", f"b{number}/1.0"])

    def step(self, epoch: int, decided: str | None = None, *, client: Recorder | None = None) -> None:
        since_ms = self.history.now_ms()
        (client or self.driver).step_begun(GROUP, epoch, since_ms=since_ms, decided_token=decided)

    def attempts(self, epoch: int, token: str, offset: int) -> list[int]:
        """The attempts of both tasks, in partitions 0 and 1, at this offset."""
        txns = []
        for task in (0, 1):
            worker = self.recorder(f"worker{task}")
            txn = worker.beginning(f"{GROUP}/{task}")
            value = f"{token}-{task}-{epoch}"
            self.send(worker, value, offset, partition=task, txn=txn, made_from=f"{token}/{task}.0")
            txns.append(txn)
        return txns

    def commit(
        self, epoch: int, token: str, txns: list[int], *, is_ours: bool | None = True, client: Recorder | None = None
    ) -> None:
        client = client or self.driver
        op = client.deciding(GROUP, epoch, token, txns)
        if is_ours is not None:
            client.decided(op, is_ours=is_ours)
        for txn in txns if is_ours is not None else ():
            (client.committed if is_ours else client.aborted)(txn)

    def there(self, *tokens: str, missing: str = "") -> None:
        """The records that readers of committed data get, as batch and step: `b0-1`."""
        for task, place in ((0, T0), (1, T1)):
            values = [f"{token.replace('-', f'-{task}-')}" for token in tokens]
            self.ends([(at, value) for at, value in enumerate(values) if value != missing], place=place)


def whole() -> Batches:
    builder = Batches()
    builder.step(1)
    builder.commit(1, "b0", builder.attempts(1, "b0", 0))
    builder.step(2, "b0")
    builder.commit(2, "b1", builder.attempts(2, "b1", 1))
    return builder


def test_batches_that_are_there_once_and_in_order_are_right() -> None:
    builder = whole()
    builder.there("b0-1", "b1-2")
    assert builder.found() == []


def test_a_committed_batch_without_one_of_its_rows_is_torn() -> None:
    builder = whole()
    builder.there("b0-1", "b1-2", missing="b1-1-2")
    assert {"eos-step", "torn-txn"} <= set(builder.found())


def test_a_batch_of_unknown_outcome_is_there_whole_or_not_at_all() -> None:
    cases: list[tuple[list[str], list[str]]] = [(["b0-1"], []), ([], [])]
    for there, expected in cases:
        builder = Batches(1)
        builder.step(1)
        builder.commit(1, "b0", builder.attempts(1, "b0", 0), is_ours=None)
        builder.there(*there)
        assert [name for name in builder.found() if name not in ("unseen", "lost-write")] == expected
    builder.there("b0-1", missing="b0-1-1")
    assert {"eos-step", "torn-txn"} <= set(builder.found()), "one decision is about both"


def test_a_row_that_is_there_twice_is_found() -> None:
    builder = Batches(1)
    builder.step(1)
    builder.commit(1, "b0", builder.attempts(1, "b0", 0), is_ours=None)
    builder.step(2)
    builder.commit(2, "b0", builder.attempts(2, "b0", 1))
    builder.there("b0-1", "b0-2")
    assert "eos-step" in builder.found()


def test_an_unlisted_attempt_is_not_there() -> None:
    builder = Batches(1)
    builder.step(1)
    builder.attempts(1, "b0", 0)
    builder.there("b0-1")
    assert builder.found() == ["aborted-read", "eos-step"]


def test_a_step_is_not_committed_when_an_earlier_one_was_as_the_same_token() -> None:
    builder = Batches(1)
    builder.step(1)
    builder.commit(1, "b0", builder.attempts(1, "b0", 0))
    builder.step(2, "b0")
    builder.commit(2, "b0", builder.attempts(2, "b0", 1), is_ours=False)
    builder.there("b0-1")
    for place, value in ((T0, "b0-0-2"), (T1, "b0-1-2")):
        builder.ends([(0, value.removesuffix("2") + "1")], aborted=[(1, value)], place=place)
    assert builder.found() == []
    builder.there("b0-1", "b0-2")
    assert {"aborted-read", "eos-step"} <= set(builder.found())


def test_batches_out_of_their_order_are_found() -> None:
    builder = whole()
    builder.there("b1-2", "b0-1")
    assert "eos-step" in builder.found()
    builder = Batches()
    builder.step(1)
    builder.commit(1, "b1", builder.attempts(1, "b1", 0))
    builder.there("b1-1")
    assert builder.found() == ["eos-step"], "b0 was left out"


def test_a_coordinator_that_forgets_is_found() -> None:
    for epoch, decided in ((1, "b0"), (2, None), (1, None)):
        builder = Batches(1)
        builder.step(1)
        builder.commit(1, "b0", builder.attempts(1, "b0", 0))
        builder.step(epoch, decided)
        builder.there("b0-1")
        assert builder.found() == ["eos-step"], (epoch, decided)


def test_a_driver_whose_step_is_over_commits_nothing() -> None:
    builder = Batches(1)
    builder.step(1)
    txns = builder.attempts(1, "b0", 0)
    builder.step(2, client=builder.recorder("deputy"))
    builder.commit(1, "b0", txns)
    builder.there("b0-1")
    assert builder.found() == ["fence-violation"]


def test_a_commit_sent_before_the_next_step_began_may_be_answered_later() -> None:
    builder = Batches(1)
    builder.step(1)
    txns = builder.attempts(1, "b0", 0)
    op = builder.driver.deciding(GROUP, 1, "b0", txns)
    builder.step(2, "b0", client=builder.recorder("deputy"))
    builder.driver.decided(op, is_ours=True)
    for txn in txns:
        builder.driver.committed(txn)
    builder.there("b0-1")
    assert builder.found() == []
