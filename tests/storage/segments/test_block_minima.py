"""Block minima find all items below a bound and skip most others."""

from hypothesis import given
from hypothesis import strategies as st
from semel_storage.segments.transaction_index import STRIDE, BlockMinima


def of(items: list[int]) -> BlockMinima:
    made = BlockMinima()
    for item in items:
        made.append(item)
    return made


@given(st.lists(st.integers(0, 50), max_size=3 * STRIDE), st.integers(0, 51), st.data())
def test_exactly_the_items_below_the_bound_are_found(items: list[int], bound: int, data: st.DataObject) -> None:
    items = items * data.draw(st.sampled_from([1, 2, STRIDE]))
    column = of(items)
    cut = data.draw(st.integers(0, len(items)))
    column.truncate(cut)
    for item in (added := data.draw(st.lists(st.integers(0, 50), max_size=5))):
        column.append(item)
    items = items[:cut] + added
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.integers(start, len(items)))
    assert len(column) == len(items)
    assert list(column.below(bound, start, stop)) == [at for at in range(start, stop) if items[at] < bound]


def test_items_above_the_bound_are_skipped_in_strides() -> None:
    """Two of 250,000 items are below the bound: the cost grows with the strides, not with the items."""
    count = STRIDE**3
    items = [9] * count
    items[77], items[count - 77] = 1, 1
    column = of(items)
    looks = 0

    class Counted(BlockMinima):
        def _stride(self, bound: int, at: int) -> int:
            nonlocal looks
            looks += 1
            return super()._stride(bound, at)

    column.__class__ = Counted
    assert list(column.below(5, 0, count)) == [77, count - 77]
    assert looks < 2 * 3 * 2 * STRIDE
