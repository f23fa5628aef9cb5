"""Values as JSON, as a page reads them: JavaScript holds integers up to 2^53 - 1 exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_console.answers import SAFE_INTEGER_MAX, encoded

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
