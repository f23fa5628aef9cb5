"""Answers of the API: values as JSON, and errors as sentences with a status."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import click
import msgspec
from semel.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from semel_protocol.errors import PortableError
from starlette.responses import Response

AWAY = (KafkaConnectionError, KafkaTimeoutError, IllegalStateError, TimeoutError, OSError)
"""Errors after which a new connection is made."""
NOT_AUTHORIZED = (
    ClusterAuthorizationFailedError,
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
STATUS_OF: tuple[tuple[type[KafkaError], int], ...] = (
    (UnknownTopicOrPartitionError, 404),
    (TransactionalIdNotFound, 404),
    (GroupIdNotFound, 404),
    *((each, 403) for each in NOT_AUTHORIZED),
    (UnsupportedVersionError, 501),
    (KafkaConnectionError, 503),
    (KafkaTimeoutError, 503),
    (IllegalStateError, 503),
    (BrokerResponseError, 409),
)
CLUSTER_ERRORS = (KafkaError, click.ClickException, OSError, TimeoutError, asyncio.TimeoutError, ValueError)
"""Errors that become a sentence on the page. Any other is a bug."""

SAFE_INTEGER_MAX = 2**53 - 1
"""The largest whole number that JavaScript holds exactly, with all smaller ones."""
_LONG_NUMBER = re.compile(rb"\d{16}")


class RequestRefusedError(PortableError):
    """A request that the console does not serve. text: what failed and what to do."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Problem(msgspec.Struct, frozen=True):
    """An error as the page shows it. kind: its type. notes: further sentences."""

    status: int
    kind: str
    text: str
    notes: tuple[str, ...] = ()


def problem_of(error: Exception) -> Problem:
    """PURE. The error as a sentence."""
    kind = type(error).__name__
    if isinstance(error, RequestRefusedError):
        return Problem(error.status, "Refused", error.text)
    if isinstance(error, click.ClickException):
        is_away = kind == "UnreachableError"
        return Problem(503 if is_away else 400, kind, error.format_message())
    if isinstance(error, KafkaError):
        status = next((status for known, status in STATUS_OF if isinstance(error, known)), 502)
        return Problem(status, kind, error.message or kind, tuple(filter(None, getattr(error, "__notes__", ()))))
    if isinstance(error, TimeoutError):
        return Problem(503, kind, "The brokers do not answer in time. The page asks again by itself")
    if isinstance(error, OSError):
        return Problem(503, kind, f"The brokers cannot be reached: {error.strerror or error}")
    return Problem(400, kind, str(error))


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, media_type="application/json")


def problem_answer(error: Exception) -> Response:
    problem = problem_of(error)
    return json_answer({"error": problem}, problem.status)


def encoded(value: object) -> bytes:
    """The value as JSON for JavaScript. A text with a lone surrogate (a header key that is not UTF-8) keeps its place.
    A whole number that JavaScript cannot hold, such as a producer id of 63 bits, becomes a text of digits.
    """
    try:
        made = msgspec.json.encode(value)
    except UnicodeEncodeError:
        made = msgspec.json.encode(_without_surrogates(value))
    if _LONG_NUMBER.search(made) is None:
        return made
    return msgspec.json.encode(_with_exact_numbers(msgspec.json.decode(made)))


def _with_exact_numbers(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > SAFE_INTEGER_MAX:
        return str(value)
    if isinstance(value, Mapping):
        return {name: _with_exact_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_exact_numbers(each) for each in value]
    return value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(each) for each in value]
    return value
