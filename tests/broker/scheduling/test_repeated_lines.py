"""Log lines of an event that repeats: one in an interval, with the number of times."""

from semel_broker.scheduling.repeated_lines import KEYS_MAX, RepeatedLines


def test_a_line_is_written_once_in_an_interval_and_then_says_how_often() -> None:
    now = 0.0
    lines = RepeatedLines(lambda: now, interval_s=10)
    assert [lines.times("a") for _ in range(5)] == [1, 0, 0, 0, 0]
    assert lines.times("b") == 1
    now = 10.0
    assert [lines.times("a"), lines.times("a")] == [5, 0]


def test_keys_without_end_do_not_fill_the_memory() -> None:
    lines = RepeatedLines(lambda: 0.0)
    assert all(lines.times(number) == 1 for number in range(3 * KEYS_MAX))
    assert len(lines._written) == KEYS_MAX
    assert lines.times(3 * KEYS_MAX - 1) == 0, "the newest are remembered"
