"""Regular expressions of clients: RE2's syntax, bounded time and memory, and a refusal that names the exceeded
limit.
"""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.config.limits import Limits
from semel_broker.regex import CACHE_BYTES_MAX, LENGTH_MAX, STATES_MAX, WORK_MAX, Expression, compiled
from semel_protocol.errors import ErrorCode, KafkaError

ATOMS = st.sampled_from(["a", "b", "-", ".", r"\.", "[ab]", "[^a]", r"\d", r"\w", "[a-c0-9_.-]", "(?:)"])


def repeated(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{0,1}", "{2,}", "*?", "+?"])
    joined = st.lists(parts, min_size=1, max_size=3).map("".join)
    either = st.lists(joined, min_size=1, max_size=3).map("|".join)
    return st.tuples(either, counts).map(lambda each: f"({each[0]}){each[1]}")


@given(st.recursive(ATOMS, repeated, max_leaves=8), st.text("ab0.-c", max_size=10))
def test_it_matches_what_re_matches(text: str, name: str) -> None:
    assert Expression(text).matches(name) is (re.fullmatch(text, name) is not None)


SYNTAX = [
    ("orders.*", "orders-eu", "xorders"),
    ("^orders.*$", "orders-eu", "xorders"),
    ("orders|payments", "payments", "payments-eu"),
    (r"\Aa\z", "a", "aa"),
    ("(?:)", "", "a"),
    (r"[[:alpha:]]+\.[[:digit:]]+", "abc.12", "12.abc"),
    (r"[[:^digit:]]+", "abc", "a1"),
    (r"\Qa.b\E+", "a.bb", "axbb"),
    ("[]a]+", "]a", "b"),
    ("(?P<x>a)b", "ab", "a"),
    ("(?<x>a)b", "ab", "a"),
    ("(?i)ORDERS", "oRdErS", "orders1"),
    ("(?i:o)rders", "Orders", "ORDERS"),
    ("(?s)a.b", "a\nb", "ab"),
    ("(?s-i:a)", "a", "A"),
    ("(?m)^a$", "a", "b"),
    ("(?U)a+", "aaa", ""),
    (r"\x31\x{10FFFF}", "1\U0010ffff", "1"),
    (r"\101\07", "A\x07", "A"),
    (r"\pN+", "1\u0663", "a"),
    (r"\p{Nd}\PN", "1a", "11"),
    (r"\p{^Nd}", "a", "1"),
    (r"\p{Greek}+", "\u03b1\u03b2", "a"),
    (r"[\p{Lu}\d]+", "A1", "a1"),
    (r"\bfoo\b.\B.*", "foo--", "foo-x"),
    (r"\w+\W\s\S\d\D", "a- b1c", "a-b1c"),
    ("a*?b+?c??d{2,3}?", "abdd", "abd"),
    ("a{,3}", "a{,3}", "aa"),
    (r"\C", "a", "ab"),
    (r"\a\f\t\n\r\v", "\a\f\t\n\r\v", ""),
]


@pytest.mark.parametrize(("text", "matching", "other"), SYNTAX)
def test_the_syntax_of_re2_is_taken(text: str, matching: str, other: str) -> None:
    assert Expression(text).matches(matching)
    assert not Expression(text).matches(other)


@pytest.mark.parametrize(
    "text",
    ["(", "a)", "[a", "*a", "a**", "a{3,1}", "a{2000}", r"(a)\1", "(?=a)", "(?<!a)b", "a\\", r"a\Z", "a++", "(?>a)"],
)
def test_what_is_no_expression_is_refused_by_name(text: str) -> None:
    with pytest.raises(KafkaError, match="RE2 refuses it") as refused:
        Expression(text)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


HEAVY = [
    *(f"[ab]*a[ab]{{{count}}}" * 2 for count in (100, 300, 1000)),
    "[ab]*a[ab]{1000}[ab]{1000}[ab]{1000}[ab]{1000}",
    *(f".*(a?){{{count}}}a{{{count}}}" for count in (100, 500, 1000)),
    "(?:[ab]?){1000}",
    "(?:.?){500}",
    *(f"(?:(?:a?b?)*){{{count}}}" for count in (100, 300, 600)),
    r"(\b|a|b)*a(\b|a|b){1000}",
    "(a*b*){490}",
    "(a+)+b",
    "(a|a)*b",
    ".*.*.*.*.*.*b",
    "(.*a){300}",
]
TOO_LARGE = [
    r"\pL{1000}",
    r"(?i)(\pL|\pN){300}.*",
    r"(?i)\PL" * 140,
    "(?:x{0,1000}){0,1}" * 50,
    "(?:.?){1000}",
    "((a{100}){100}){100}",
    "x" * (LENGTH_MAX + 1),
]
NAMES = ["a" * 249, "ab" * 124, "abb" * 83 + "c", "a" * 4096, "ab" * 2048, "abaab" * 819 + "c"]


def cpu_s(work: Callable[[], object]) -> float:
    """CPU time of the shorter of two runs."""
    times = []
    for _ in range(2):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@pytest.mark.parametrize("text", HEAVY)
def test_a_match_holds_the_loop_for_a_moment_or_is_refused(text: str) -> None:
    for name in NAMES:
        if (expression := Expression(text)).is_too_much_for(name):
            with pytest.raises(KafkaError, match="states are too many for a name of") as refused:
                expression.matches(name)
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        else:
            assert cpu_s(lambda name=name: Expression(text).matches(name)) < 0.1


@pytest.mark.parametrize("text", TOO_LARGE)
def test_an_expression_that_is_too_large_is_refused_in_a_moment(text: str) -> None:
    def refused() -> None:
        with pytest.raises(KafkaError, match=r"smaller counts|characters|RE2 refuses it"):
            Expression(text)

    assert cpu_s(refused) < 0.1


def test_every_topic_can_be_matched_by_every_expression() -> None:
    assert Limits().topic_name_length_max * STATES_MAX <= WORK_MAX


def test_the_memory_of_all_expressions_is_bounded() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for count in range(200, 800):
        expression = compiled(f"[ab]*a[ab]{{{count}}}")
        expression.matches("abaab" * 49)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < CACHE_BYTES_MAX + (16 << 20)


def test_a_match_of_little_work_counts_as_few_steps() -> None:
    assert Expression("orders.*").steps("orders-eu") == 4
    assert Expression("[ab]*a[ab]{1000}").steps("ab" * 124) > 10


def test_an_error_shows_the_beginning_of_a_long_expression() -> None:
    with pytest.raises(KafkaError) as refused:
        Expression("(" * 900)
    assert len(refused.value.message or "") < 250
