"""Values as JSON, as a page reads them: JavaScript holds integers up to 2^53 - 1 exactly. Errors are sentences."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel.errors import (
    BrokerNotAvailableError,
    BrokerResponseError,
    GroupIdNotFound,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NonEmptyGroup,
    SecurityDisabled,
    UnknownTopicOrPartitionError,
)
from semel.errors.base import ERROR_OF
from semel_console.answers import SAFE_INTEGER_MAX, encoded, problem_of, words_of

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def exact(value: Any) -> Any:
    """The value as a page should read it."""
    if isinstance(value, int) and abs(value) > SAFE_INTEGER_MAX:
        return str(value)
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    return [exact(each) for each in value] if isinstance(value, list) else value


@given(VALUES)
def test_integers_that_javascript_would_round_are_texts_and_all_else_is_unchanged(value: Any) -> None:
    assert json.loads(encoded(value)) == exact(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (SAFE_INTEGER_MAX, "9007199254740991"),
        (SAFE_INTEGER_MAX + 1, '"9007199254740992"'),
        (-SAFE_INTEGER_MAX - 1, '"-9007199254740992"'),
        ({"producer_id": 7168087661524026344}, '{"producer_id":"7168087661524026344"}'),
        (["7168087661524026344", '",7168087661524026344,"'], '["7168087661524026344","\\",7168087661524026344,\\""]'),
        (0.12345678901234568, "0.12345678901234568"),
        (1.2345678901234568e300, "1.2345678901234568e300"),
    ],
)
def test_examples(value: Any, text: str) -> None:
    assert encoded(value).decode() == text


NO_ENTRIES = "This cluster has no access control entries (ACLs): its brokers run without authorizer.class.name"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            UnknownTopicOrPartitionError("describing topic 'nope'"),
            "There is no such topic or partition (describing topic 'nope'). "
            + UnknownTopicOrPartitionError.advice
            + ".",
        ),
        (
            SecurityDisabled("describing ACLs"),
            f"{NO_ENTRIES} (describing ACLs). Configure an authorizer on the brokers first.",
        ),
        (
            InvalidConfigurationError("altering topic 'orders': 'soon' is no number"),
            "Altering topic 'orders': 'soon' is no number. Check the setting's name and range.",
        ),
        (NonEmptyGroup("deleting group 'stock'"), "Deleting group 'stock' failed. Stop the group's members first."),
        (
            GroupIdNotFound("deleting group 'stock': there is no group 'stock'"),
            "There is no such group (deleting group 'stock'). Check the group's name.",
        ),
        (KafkaTimeoutError("no answer: [7 REQUEST_TIMED_OUT] listing offsets"), "No answer: listing offsets."),
        (BrokerNotAvailableError(), "Broker not available. This broker is offline: check which brokers run."),
    ],
)
def test_an_error_is_a_sentence_without_its_code_and_with_what_to_do(error: KafkaError, text: str) -> None:
    assert words_of(error) == text
    assert problem_of(error).text == text


@pytest.mark.parametrize("kind", sorted(ERROR_OF.values(), key=lambda each: each.__name__))
def test_no_error_of_a_broker_is_shown_with_its_code(kind: type[BrokerResponseError]) -> None:
    said = words_of(kind("asking for it"))
    assert kind.code.name not in said
    assert "[" not in said
    assert said.endswith(".")
