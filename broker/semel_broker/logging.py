"""EDGE: the setup of structlog: readable lines on a terminal, one JSON object per line elsewhere.

Each line is an event name with fields (`connection_closed reason=... client_host=...`), so that it can be searched.
"""

from __future__ import annotations

import codecs
import json
import logging
import sys
from collections.abc import MutableMapping
from errno import EIO, EPIPE
from functools import partial
from io import TextIOWrapper
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from semel_protocol.visible import encodable, visible, visible_json

from semel_broker.world import Logger

LogFormat = Literal["auto", "console", "json"]


def make_logger(level: str, log_format: LogFormat, stream: TextIO | None = None) -> Logger:
    """A logger that writes lines of `level` ("debug", "info", "warning", "error") and above to `stream` (stdout)."""
    stream = stream or sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # it may have an encoding without most characters
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    renderers: list[Any] = (
        [
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
            _escape,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, sort_keys=False
            ),
        ]
        if console
        else [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=partial(_json, is_ascii=not _is_utf8(stream))),
        ]
    )
    logger = structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _Lines(stream))),
        processors=[structlog.processors.add_log_level, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )
    return cast("Logger", logger.bind())


def _is_utf8(stream: TextIO) -> bool:
    return not isinstance(stream, TextIOWrapper) or codecs.lookup(stream.encoding).name == "utf-8"


class _Lines:
    """Writes lines to a stream, and drops them once its terminal has hung up or its pipe is closed.

    The broker then continues without its log, and can still stop cleanly.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_gone = False  # permanently, unlike a full disk

    def write(self, text: str) -> None:
        if self._is_gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self._is_gone = error.errno in (EIO, EPIPE)

    def flush(self) -> None:
        """Does nothing: `write` flushes each line."""


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
