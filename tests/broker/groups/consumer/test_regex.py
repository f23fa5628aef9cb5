"""Regular expressions of subscriptions: what `re` matches, in linear time, and nothing that RE2 lacks."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.regex import Expression
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


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("orders.*", "orders-eu", True),
        ("^orders.*$", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("orders|payments", "payments", True),
        (r"\Aa\z", "a", True),
        ("a^b", "ab", False),
        ("", "", True),
        (r"[[:alpha:]]+\.[[:digit:]]+", "abc.12", True),
        (r"\Qa.b\E+", "a.bb", False),
        ("[]a]+", "]a", True),
        ("(?P<x>a)b", "ab", True),
    ],
)
def test_what_topics_are_subscribed_by(text: str, name: str, expected: bool) -> None:
    assert Expression(text).matches(name) is expected


@pytest.mark.parametrize(
    "text",
    ["(", "a)", "[a", "*a", "a**", "a{3,1}", "a{2000}", r"(a)\1", "(?=a)", "(?<!a)b", "a\\", "(?i)a", "x" * 1001],
)
def test_what_is_no_expression_is_refused_by_name(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        Expression(text)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("text", ["((a{100}){100}){100}", "((){1000}){1000}"])
def test_too_many_states_are_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="states"):
        Expression(text)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", ".*.*.*.*.*.*b", "(a?){100}a{100}b"])
def test_an_expression_that_backtracking_would_never_finish_takes_moments(text: str) -> None:
    started = time.process_time()
    assert not Expression(text).matches("a" * 249)
    assert time.process_time() - started < 2
