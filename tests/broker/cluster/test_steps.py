"""Steps are put into transactions: all of them, each whole, in order, within the limits of the store."""

from __future__ import annotations

from broker.cluster.brokers import RecordedLog
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.cluster.steps import Step, log_steps, pack
from semel_broker.cluster.store import Delete, Expect


@st.composite
def some_steps(draw: st.DrawFn) -> list[Step]:
    steps = []
    for number in range(draw(st.integers(0, 30))):
        own = [Expect(f"{number}/{i}", i + 1) for i in range(draw(st.integers(0, 4)))]
        shared = [Expect(f"broker {i}", 9) for i in draw(st.lists(st.integers(0, 3), max_size=2, unique=True))]
        changes = [Delete(f"{number}/{i}") for i in range(draw(st.integers(1, 4)))]
        steps.append(Step(expects=(*own, *shared), changes=tuple(changes), what=str(number)))
    return steps


@settings(deadline=None)
@given(some_steps(), st.integers(1, 20), st.booleans())
def test_each_step_is_in_one_transaction_with_all_that_it_expects(
    steps: list[Step], size_max: int, has_office: bool
) -> None:
    office = (Expect("controller", 5),) if has_office else ()
    batches = list(pack(steps, size_max, office))
    assert [step for batch in batches for step in batch.steps] == steps
    for batch in batches:
        keys = [expect.key for expect in batch.expects]
        assert len(keys) == len(dict.fromkeys(keys)), "each is expected once"
        assert all(expect in batch.expects for step in batch.steps for expect in (*office, *step.expects))
        assert batch.changes == [change for step in batch.steps for change in step.changes]
        if len(batch.steps) > 1:
            assert max(len(batch.expects), len(batch.changes)) <= size_max


@settings(deadline=None)
@given(some_steps(), st.integers(1, 20))
def test_each_transaction_holds_as_many_steps_as_fit(steps: list[Step], size_max: int) -> None:
    batches = list(pack(steps, size_max))
    for i in range(len(batches) - 1):
        first = batches[i + 1].steps[0]
        together = {expect.key for expect in (*batches[i].expects, *first.expects)}
        assert max(len(together), len(batches[i].changes) + len(first.changes)) > size_max


def test_many_steps_of_a_kind_are_logged_as_a_count() -> None:
    steps = [Step(expects=(), changes=(), what="isr_shrunk", facts={"partition": i}) for i in range(9)]
    more = [Step(expects=(), changes=(), what="leader_elected", facts={"partition": i}) for i in range(5, 7)]
    few, many = RecordedLog(), RecordedLog()
    log_steps(few.info, steps[:2])
    log_steps(many.info, [*steps, *more])
    assert few.lines == [("isr_shrunk", {"partition": 0}), ("isr_shrunk", {"partition": 1})]
    assert many.lines == [
        ("isr_shrunk", {"count": 9, "first_partition": 0}),
        ("leader_elected", {"count": 2, "first_partition": 5}),
    ]
