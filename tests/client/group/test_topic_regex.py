"""A pattern of Python's `re`, as brokers evaluate it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._group.topic_regex import regex_for_brokers
from semel_broker.regex import compiled
from semel_protocol.errors import KafkaError

PARTS = [
    "a",
    "b",
    "ab",
    ".",
    "[ab]",
    "[^a]",
    "(a|b)",
    "(?:ab)",
    "a*",
    "b+",
    "a?",
    "b{1,2}",
    "|",
    "^",
    "$",
    r"\.",
    r"\d",
]


@given(st.lists(st.sampled_from(PARTS), max_size=6), st.lists(st.text("ab.1", max_size=5), max_size=20))
def test_brokers_and_the_client_match_the_same_topics(parts: list[str], topics: list[str]) -> None:
    try:
        pattern = re.compile("".join(parts))
    except re.error:
        return
    regex = regex_for_brokers(pattern, exclude_internal_topics=False)
    assert regex is not None
    try:
        expression = compiled(regex)
    except KafkaError:
        return  # the client evaluates it then
    for topic in topics:
        assert expression.matches(topic) == (pattern.match(topic) is not None), (regex, topic)


@pytest.mark.parametrize(
    ("pattern", "regex"),
    [
        ("orders-", "(?:orders-).*"),
        (re.compile("orders", re.IGNORECASE), "(?i)(?:orders).*"),
        (re.compile("orders", re.ASCII), "(?:orders).*"),
        ("a|b", "(?:a|b).*"),
    ],
)
def test_what_brokers_get(pattern: str | re.Pattern[str], regex: str) -> None:
    assert regex_for_brokers(re.compile(pattern), exclude_internal_topics=True) == regex


@pytest.mark.parametrize("pattern", [re.compile("a b", re.VERBOSE), re.compile("^a", re.MULTILINE), "a{,2}", "[[:a]"])
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
def test_a_pattern_that_means_something_else_in_re2_stays_with_the_client(pattern: str | re.Pattern[str]) -> None:
    assert regex_for_brokers(re.compile(pattern), exclude_internal_topics=True) is None


def test_a_pattern_that_matches_internal_topics_stays_with_the_client_unless_they_are_wanted() -> None:
    pattern = re.compile(".*")
    assert regex_for_brokers(pattern, exclude_internal_topics=True) is None
    assert regex_for_brokers(pattern, exclude_internal_topics=False) == "(?:.*).*"
