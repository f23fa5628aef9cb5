"""EDGE: structlog, set up once: for people on a terminal, one JSON object per line for machines.

Every line is an event name and keys (`connection_closed reason=... client_host=...`), so that it can be searched for.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog

from semel_broker.world import Logger

LogFormat = Literal["auto", "console", "json"]


def make_logger(level: str, log_format: LogFormat, stream: TextIO | None = None) -> Logger:
    """A logger that writes lines of `level` ("debug", "info", "warning", "error") and above to `stream` (stdout)."""
    stream = stream or sys.stdout
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    renderers: list[Any] = (
        [
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, sort_keys=False
            ),
        ]
        if console
        else [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    )
    logger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[structlog.processors.add_log_level, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )
    return cast("Logger", logger.bind())


def _json(line: dict[str, Any], **_: object) -> str:
    """When, how bad and what first; then the keys."""
    first = {key: line.pop(key) for key in ("timestamp", "level", "event")}
    return msgspec.json.encode(first | line, enc_hook=repr).decode()
