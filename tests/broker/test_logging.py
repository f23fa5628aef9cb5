"""Lines of the broker's log: one line for each event, without control characters for a terminal."""

from __future__ import annotations

import io
import json
import os
import threading
from typing import Any, TextIO

import pytest
from semel_broker import logging as broker_logging
from semel_broker.audit_file import audit_room, lost_line
from semel_broker.logging import AUDIT, LogFormat, LogOutput, make_logger
from semel_broker.output.line_queue import Room

pytestmark = pytest.mark.real_time

EVIL = "\x1b[2J\x9b31mFAKED\nFAKED event\u202e"


def opened(stream: TextIO | None) -> LogOutput:
    return LogOutput(stream, audit_room=audit_room(is_required=False))


def written(form: LogFormat, stream: TextIO, event: str, **fields: Any) -> None:
    output = opened(stream)
    make_logger("info", form, output).error(event, **fields)
    assert output.close(20)


@pytest.mark.parametrize("form", ["console", "json"])
def test_what_clients_choose_stays_in_its_line(form: LogFormat) -> None:
    stream = io.StringIO()
    written(form, stream, "connection_closed", client_id=EVIL, count=3, why=ValueError(EVIL), id=None)
    (line,) = stream.getvalue().splitlines()
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in line)
    assert "count=3" in line if form == "console" else json.loads(line)["client_id"] == EVIL


def test_a_traceback_keeps_its_lines() -> None:
    stream = io.StringIO()
    try:
        raise ValueError("wrong")
    except ValueError as e:
        written("console", stream, "unexpected_error", exc_info=e)
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
    written(form, stream, "ready", **facts)
    (line,) = data.getvalue().decode("ascii").splitlines()
    if form == "json":
        read = json.loads(line)
        assert (read["data_dir"], read["topic"]) == ("caf\\udce9", "größer")
    else:
        assert "data_dir=caf\\udce9" in line


class BlockedStdout:
    """A pipe as standard output. It is filled, so that the first line of the log waits until `lines` reads."""

    def __init__(self) -> None:
        self.outside, inside = os.pipe()
        os.set_blocking(inside, False)
        self._filled = 0
        try:
            while True:
                self._filled += os.write(inside, b" " * 4096)
        except BlockingIOError:
            os.set_blocking(inside, True)
        self.stream = os.fdopen(inside, "w", encoding="utf-8")

    def lines(self, output: LogOutput) -> list[str]:
        """Close the output, and return all that was written."""
        data: list[bytes] = []

        def read() -> None:
            while chunk := os.read(self.outside, 65_536):
                data.append(chunk)

        reader = threading.Thread(target=read)
        reader.start()
        assert output.close(20)
        self.stream.close()
        reader.join(20)
        os.close(self.outside)
        return b"".join(data)[self._filled :].decode().splitlines()


@pytest.mark.parametrize("form", ["console", "json"])
def test_lost_lines_are_counted_in_their_place_and_errors_and_the_audit_have_bounds_of_their_own(
    form: LogFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_logging, "LOG_ROOM", Room(lines_max=10, bytes_max=1 << 20))
    pipe = BlockedStdout()
    output = opened(pipe.stream)
    output.audit_lost = lost_line
    log = make_logger("info", form, output)
    for number in range(100):  # returns: nothing waits for the pipe
        log.info("event", number=number)
    log.error("failed")
    output.put(AUDIT, "audit line")
    log.warning("late")
    assert output.lost_lines == 91
    lines = pipe.lines(output)
    gaps = ["log_lines_lost" in line for line in lines]  # one or two in a place: the thread may have taken the first
    kept = [line for line, is_gap in zip(lines, gaps, strict=True) if not is_gap]
    assert len(kept) == 12
    assert all("number" in line for line in kept[:10])
    assert "failed" in kept[10]
    assert kept[11] == "audit line"
    assert gaps[:11] == [False] * 10 + [True]
    assert gaps[lines.index(kept[10]) :] == [False, False, True]
    if form == "json":
        told = [json.loads(line) for line, is_gap in zip(lines, gaps, strict=True) if is_gap]
        assert sum(each["lines"] for each in told) == 91
        assert all(each["level"] == "warning" for each in told)
    assert output.lost_audit_lines == 0


def test_lost_audit_lines_on_standard_output_are_counted_as_in_a_file() -> None:
    pipe = BlockedStdout()
    output = LogOutput(pipe.stream, audit_room=Room(1, 1 << 20))
    output.audit_lost = lost_line
    for _ in range(3):
        output.put(AUDIT, "line")
    assert output.lost_audit_lines == 2
    first, *gaps = pipe.lines(output)
    assert first == "line"
    told = [json.loads(gap) for gap in gaps]
    assert {each["decision"] for each in told} == {"lost"}
    assert sum(each["times"] for each in told) == 2


def test_a_closed_pipe_costs_lines_alone_and_the_writer_rests() -> None:
    outside, inside = os.pipe()
    os.close(outside)
    output = opened(os.fdopen(inside, "w"))
    log = make_logger("info", "json", output)
    log.info("first")
    assert output.flush(20)
    for _ in range(10):
        log.info("later")
    assert output.lost_lines == 11
    assert output.close(20)


def test_a_pipe_that_is_not_read_bounds_the_end() -> None:
    pipe = BlockedStdout()
    output = opened(pipe.stream)
    make_logger("info", "json", output).info("last")
    assert not output.close(0.05)
    pipe_lines = os.read(pipe.outside, 1 << 20)
    assert pipe_lines.strip() == b""
    os.close(pipe.outside)


def test_a_pipe_that_another_process_has_set_to_non_blocking_gets_every_line() -> None:
    pipe = BlockedStdout()
    os.set_blocking(pipe.stream.fileno(), False)
    output = opened(pipe.stream)
    log = make_logger("info", "json", output)
    for number in range(1_000):
        log.info("event", number=number, text="x" * 300)
    lines = pipe.lines(output)
    assert [json.loads(line)["number"] for line in lines] == list(range(1_000))


def test_without_an_output_lines_are_dropped() -> None:
    output = opened(None)
    make_logger("info", "auto", output).info("event")
    assert output.close(20)
