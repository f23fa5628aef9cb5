"""Visible text has no character that controls a terminal, and stays readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_protocol.visible import visible, visible_bytes, visible_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ÄÖ, 日本, 👍 and \\x1b", "plain, ÄÖ, 日本, 👍 and \\x1b"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("gpj.\u202etxt", "gpj.\\u202etxt"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
        ("12\u00a0345", "12\u00a0345"),
    ],
)
def test_control_characters_are_escaped_and_others_are_not(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_bytes_that_are_not_utf8_are_shown_as_escapes() -> None:
    assert visible_bytes(b"a\xff\x1b\xc3\xa4") == "a\\xff\\x1bä"


@given(st.text())
def test_visible_text_has_no_character_to_escape(text: str) -> None:
    assert visible(visible(text)) == visible(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in visible(text))


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_visible_json_has_the_same_value(value: object) -> None:
    line = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(line) == value
    assert line == visible(line)
