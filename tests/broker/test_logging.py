"""Lines of the broker's log: one line an event, and nothing in it that steers a terminal."""

from __future__ import annotations

import io
import json

import pytest
from semel_broker.logging import LogFormat, make_logger

EVIL = "\x1b[2J\x9b31mFAKED\nFAKED event\u202e"


@pytest.mark.parametrize("form", ["console", "json"])
def test_what_clients_choose_stays_in_its_line(form: LogFormat) -> None:
    stream = io.StringIO()
    make_logger("info", form, stream).info("connection_closed", client_id=EVIL, count=3, why=ValueError(EVIL), id=None)
    (line,) = stream.getvalue().splitlines()
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in line)
    assert "count=3" in line if form == "console" else json.loads(line)["client_id"] == EVIL


def test_a_traceback_keeps_its_lines() -> None:
    stream = io.StringIO()
    try:
        raise ValueError("wrong")
    except ValueError as e:
        make_logger("info", "console", stream).error("unexpected_error", exc_info=e)
    assert stream.getvalue().splitlines()[-1] == "ValueError: wrong"


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_file_name_that_is_not_utf8_and_a_stream_that_is_not_either_are_written_with_escapes(form: LogFormat) -> None:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding="ascii")
    facts = {
        "data_dir": "caf\udce9",
        "names": ["\udcff", {"x\udcff": 1}],
        "topic": "größer",
        "error": OSError("\udce9"),
    }
    make_logger("info", form, stream).info("ready", **facts)
    (line,) = data.getvalue().decode("ascii").splitlines()
    if form == "json":
        read = json.loads(line)
        assert (read["data_dir"], read["topic"]) == ("caf\\udce9", "größer")
    else:
        assert "data_dir=caf\\udce9" in line
