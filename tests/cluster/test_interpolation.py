"""`${NAME:-default}` and similar forms have the same meaning as in Compose."""

from __future__ import annotations

import pytest

from tools.cluster.interpolation import InterpolationError, dotenv, filled, interpolate

SET = {"NAME": "semel", "EMPTY": "", "PORT": "19092"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$NAME", "semel"),
        ("${NAME}", "semel"),
        ("a-${NAME}-b", "a-semel-b"),
        ("$NAME/x", "semel/x"),
        ("$GONE|${GONE}", "|"),
        ("$$NAME", "$NAME"),
        ("$${NAME}", "${NAME}"),
        ("${GONE:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY-default}", ""),
        ("${GONE-default}", "default"),
        ("${NAME:-default}", "semel"),
        ("${GONE:-}", ""),
        ("${GONE:-${NAME}:$PORT}", "semel:19092"),
        ("${GONE:-${ALSO:-inner}}x", "innerx"),
        ("${NAME:+given}", "given"),
        ("${EMPTY:+given}", ""),
        ("${EMPTY+given}", "given"),
        ("${GONE+given}", ""),
        ("${NAME:?must be}", "semel"),
        ("${EMPTY?must be}", ""),
        ("${HOST:-127.0.0.1}:${PORT:-1}:9092", "127.0.0.1:19092:9092"),
    ],
)
def test_a_variable_is_filled_in_as_compose_does(text: str, expected: str) -> None:
    assert filled(text, SET) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${GONE:?say who}", "GONE must be set: say who"),
        ("${EMPTY:?say who}", "EMPTY must be set"),
        ("${GONE?}", "GONE must be set"),
        ("costs 5 $", "write \\$\\$"),
        ("${}", "there is no variable"),
        ("${NAME", "not closed"),
        ("${NAME!x}", "is not an operator"),
    ],
)
def test_a_variable_without_a_value_is_refused_with_its_message(text: str, words: str) -> None:
    with pytest.raises(InterpolationError, match=words):
        filled(text, SET)


def test_values_are_filled_in_at_every_depth_and_keys_and_numbers_stay() -> None:
    given = {"$NAME": ["${NAME}", 3, None, {"a": "$PORT"}]}
    assert interpolate(given, SET) == {"$NAME": ["semel", 3, None, {"a": "19092"}]}


def test_dotenv_knows_comments_quotes_and_export() -> None:
    text = "# ports\nA=1\n\nexport B = two words \nC='kept # whole'\nD=\"x\"\nE=5 # five\nF=\n"
    assert dotenv(text) == {"A": "1", "B": "two words", "C": "kept # whole", "D": "x", "E": "5", "F": ""}
    with pytest.raises(InterpolationError, match="line 2"):
        dotenv("A=1\nno pair\n")
