"""EDGE: the setup of structlog: readable lines on a terminal, one JSON object per line elsewhere.

Each line is an event name with fields (`connection_closed reason=... client_host=...`), so that it can be searched. A
thread writes the lines (`output/line_writer`): an output that is not read does not hold the event loop. Errors have a
room of their own in its queue, and so have lines of the audit log on standard output.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper, UnsupportedOperation
from typing import Any, Final, Literal, TextIO, cast

import msgspec
import structlog
from semel_protocol.visible import encodable, visible, visible_json

from semel_broker.output.descriptor_sink import DescriptorSink, StreamSink
from semel_broker.output.line_queue import Lost, Room
from semel_broker.output.line_writer import LineWriter
from semel_broker.world import Logger

LogFormat = Literal["auto", "console", "json"]

LOG, ERROR, AUDIT = "log", "error", "audit"
"""The kinds of lines on standard output; ERROR: those of the log with level error and above."""
LOG_ROOM: Final = Room(lines_max=10_000, bytes_max=4 << 20)
ERROR_ROOM: Final = Room(lines_max=1_000, bytes_max=1 << 20)
UTF_8: Final = "utf-8"


class LogOutput:
    """The output of the log, with a writer of its own.

    `is_terminal`: whether people read it. `is_utf8`: whether it has all characters.
    """

    def __init__(self, stream: TextIO | None, *, audit_room: Room) -> None:
        """`stream`: stdout, or another one; None: there is no output, and the lines are dropped."""
        self._stream = stream
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # it may have an encoding without most characters
        self.is_terminal = stream is not None and stream.isatty()
        self._encoding = codecs.lookup(stream.encoding).name if isinstance(stream, TextIOWrapper) else UTF_8
        self.is_utf8 = self._encoding == UTF_8
        self.log_lost: Callable[[int, str], str] = lambda lines, since: ""
        """The line of the log in place of lost ones: their number, and when the first one came."""
        self.audit_lost = self.log_lost
        """The same for the audit log."""
        rooms = {LOG: LOG_ROOM, ERROR: ERROR_ROOM, AUDIT: audit_room}
        self._writer = LineWriter(self._sink(), rooms, self._describe, name="semel-log")

    def put(self, kind: str, line: str) -> bool:
        """Queue a line. `kind`: LOG, ERROR or AUDIT. False: it is lost."""
        return self._writer.put(kind, self._encoded(line))

    @property
    def lost_lines(self) -> int:
        """Lines of the log that were lost since the start."""
        return self._writer.lost_lines(LOG, ERROR)

    @property
    def lost_audit_lines(self) -> int:
        """Lines of the audit log that were lost since the start."""
        return self._writer.lost_lines(AUDIT)

    def is_behind(self, seconds: float) -> bool:
        """Whether a line of the audit log may wait long; see `LineWriter.is_behind`."""
        return self._writer.is_behind(AUDIT, seconds)

    @property
    def is_seen_beside_stderr(self) -> bool:
        """Whether a reader of standard error sees these lines, too, or another program takes them. Then standard error
        need not say what a line has said. So it is for a terminal, a pipe and a socket. The lines in a file are not
        seen by a person at the terminal, and those for the null device by no reader.
        """
        try:
            mode = os.fstat(self._stream.fileno()).st_mode if self._stream is not None else 0
        except UnsupportedOperation:
            return True  # a stream in memory
        except (OSError, ValueError):
            return False  # it was closed meanwhile
        if stat.S_ISREG(mode):
            return sys.stderr is None or not sys.stderr.isatty()
        return self.is_terminal or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

    def flush(self, wait_s: float) -> bool:
        """Wait until all lines are written, at most `wait_s` seconds. Returns whether they are."""
        return self._writer.flush(wait_s)

    def close(self, wait_s: float) -> bool:
        """`flush`, and write no more."""
        return self._writer.close(wait_s)

    def _sink(self) -> DescriptorSink | StreamSink:
        if self._stream is None:
            return StreamSink(None, UTF_8)
        try:
            return DescriptorSink(self._stream.fileno())
        except UnsupportedOperation:
            return StreamSink(self._stream, self._encoding)

    def _encoded(self, line: str) -> bytes:
        return f"{line}\n".encode(self._encoding, errors="backslashreplace")

    def _describe(self, lost: Lost) -> bytes:
        since = iso(lost.since_ms)
        of_log, of_audit = lost.lines.get(LOG, 0) + lost.lines.get(ERROR, 0), lost.lines.get(AUDIT, 0)
        said = [self.log_lost(of_log, since)] if of_log else []
        if of_audit:
            said.append(self.audit_lost(of_audit, since))
        return b"".join(map(self._encoded, said))


def iso(time_ms: int) -> str:
    """A wall clock's time (ms since 1970) in UTC, as in the audit log."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_for_people(log_format: LogFormat, output: LogOutput) -> bool:
    """Whether the log has readable lines, and not JSON."""
    return log_format == "console" or (log_format == "auto" and output.is_terminal)


def make_logger(level: str, log_format: LogFormat, output: LogOutput) -> Logger:
    """A logger that writes lines of `level` ("debug", "info", "warning", "error") and above to `output`."""
    renderers: list[Any] = (
        [
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
            _escape,
            structlog.dev.ConsoleRenderer(
                colors=output.is_terminal, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
            ),
        ]
        if is_for_people(log_format, output)
        else [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=partial(_json, is_ascii=not output.is_utf8)),
        ]
    )
    processors = [structlog.processors.add_log_level, *renderers]

    def lost(lines: int, since: str) -> str:
        line: Any = {"event": "log_lines_lost", "lines": lines, "since": since}
        for each in processors:
            line = each(None, "warning", line)
        return cast("str", line)

    output.log_lost = lost
    logger = structlog.wrap_logger(
        _Lines(output),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )
    return cast("Logger", logger.bind())


class _Lines:
    """Takes the rendered lines of structlog, which calls the method of a line's level."""

    def __init__(self, output: LogOutput) -> None:
        self._output = output

    def debug(self, line: str) -> None:
        self._output.put(LOG, line)

    info = warning = debug

    def error(self, line: str) -> None:
        self._output.put(ERROR, line)


def _escape(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in texts from peers and clients; exceptions keep their line breaks."""
    for key, value in line.items():
        if not isinstance(value, int | float | None) and key != "exc_info":
            line[key] = visible(value if isinstance(value, str) else repr(value))
    return line


def _json(line: dict[str, Any], *, is_ascii: bool, **_: object) -> str:
    """One line of JSON: timestamp, level and event first, then the other fields. `is_ascii`: with \\u escapes."""
    first = {key: line.pop(key) for key in ("timestamp", "level", "event")}
    try:
        data = msgspec.json.encode(first | line, enc_hook=repr)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_encodable(first | line), enc_hook=lambda value: encodable(repr(value)))
    text = visible_json(data.decode())
    return json.dumps(json.loads(text), separators=(",", ":")) if is_ascii else text


def _encodable(value: Any) -> Any:
    """A value of a log line with surrogates escaped: names of files need not be UTF-8."""
    match value:
        case str():
            return encodable(value)
        case dict():
            return {_encodable(key): _encodable(each) for key, each in value.items()}
        case list() | tuple():
            return [_encodable(each) for each in value]
        case _:
            return value
