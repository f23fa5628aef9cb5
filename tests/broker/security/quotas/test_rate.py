"""Rates over a sliding window, and token buckets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.security.quotas.rate import Rate, TokenBucket, Window

WINDOW = Window()


def test_a_rate_at_the_quota_waits_for_nothing() -> None:
    rate = Rate(WINDOW)
    rate.record(1_000, 5.0)
    assert rate.value(5.0) == 100.0  # a new rate has a window of ten seconds
    assert rate.wait_s(100.0, 5.0) == 0.0


def test_the_wait_is_the_time_that_the_excess_takes_at_the_quota() -> None:
    rate = Rate(WINDOW)
    rate.record(1_500, 5.0)
    assert rate.wait_s(100.0, 5.0) == pytest.approx(5.0)
    rate.record(100, 10.0)
    assert rate.wait_s(100.0, 10.0) == pytest.approx(6.0)  # the excess of before is still in the window
    rate.record(100, 16.0)
    assert rate.wait_s(100.0, 16.0) == 0.0


def test_the_wait_is_never_longer_than_the_window() -> None:
    rate = Rate(WINDOW)
    rate.record(1_000_000, 0.0)
    assert rate.wait_s(1.0, 0.0) == WINDOW.length_s
    assert rate.value(WINDOW.length_s) == 0.0


def test_samples_leave_the_window_one_after_the_other() -> None:
    rate = Rate(WINDOW)
    for second in range(20):
        rate.record(100, float(second))
    assert rate.total(19.0) == 1_100
    assert rate.total(25.0) == 500
    assert rate.total(31.0) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(WINDOW)
    rate.record(100, 0.0)
    rate.record(9_000, 1.0)
    rate.record(-9_000, 1.0)
    assert rate.total(1.0) == 100


STEPS = st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(1.0, 5_000.0)), min_size=1, max_size=60)


@given(bound=st.floats(1.0, 1_000.0), steps=STEPS)
def test_a_client_that_waits_never_exceeds_its_quota_by_more_than_a_burst(
    bound: float, steps: list[tuple[float, float]]
) -> None:
    """Over any window: the quota of the window and one sample, the largest request, and a little for each wait.

    Waits grow with the excess, so n requests of size a above the bound take n * n * a / (2 * bound) seconds: an excess
    of at most sqrt(2 * a * bound * length).
    """
    rate, now, done = Rate(WINDOW), 0.0, []
    for pause, amount in steps:
        now += pause
        rate.record(amount, now)
        done.append((now, amount))
        wait = rate.wait_s(bound, now)
        assert 0 <= wait <= WINDOW.length_s
        now += wait
    longest_s, burst = WINDOW.length_s + WINDOW.sample_s, max(amount for _, amount in steps)
    most = bound * longest_s + burst + math.sqrt(2 * burst * bound * longest_s)
    for end, _ in done:
        within = sum(amount for at, amount in done if end - at < WINDOW.length_s * (1 - 1e-9) and at <= end)
        assert within <= most * (1 + 1e-9)


def test_a_bucket_lets_a_burst_pass_and_then_the_rate() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(55, 5.0, 0.0)
    assert bucket.wait_s(5.0, 0.0) == 0.0
    bucket.take(10, 5.0, 0.0)
    assert bucket.wait_s(5.0, 0.0) == pytest.approx(2.0)
    assert bucket.wait_s(5.0, 1.5) == pytest.approx(0.5)
    assert bucket.wait_s(5.0, 2.0) == 0.0


def test_a_bucket_is_never_more_than_full() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(1, 5.0, 0.0)
    bucket.take(-100, 5.0, 0.0)
    bucket.take(56, 5.0, 1_000.0)
    assert bucket.wait_s(5.0, 1_000.0) == pytest.approx(0.2)
