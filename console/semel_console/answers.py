"""Answers of the API: values as JSON, changes, and errors as sentences with a status."""

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
    SecurityDisabled,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from semel.errors.base import says
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
CODE_IN_TEXT = re.compile(r"\[-?\d+ [A-Z][A-Z_]+\] ?")
"""An error code as the client writes it: its number and its name."""
ASKS_AGAIN = (
    "Check that the brokers run, and the address that the console was started with. The page asks again by itself."
)
CALL = re.compile("[a-z]+ing ")
"""A text that only names the call begins so: the broker gave no words of its own."""
SENTENCES: tuple[tuple[type[KafkaError], str], ...] = (
    (
        SecurityDisabled,
        "This cluster has no access control entries (ACLs): its brokers run without authorizer.class.name",
    ),
    (UnknownTopicOrPartitionError, "There is no such topic or partition"),
    (GroupIdNotFound, "There is no such group"),
    (TransactionalIdNotFound, "There is no such transactional id"),
    (TopicAlreadyExistsError, "There is a topic of this name already"),
)
"""What happened, in place of the words of brokers, which say the same or nothing."""
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


class ChangeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a change. changes: a sentence for each. notes: facts to know before.

    text: the result; None: nothing was changed. exact: fields for the body of the confirmed request, so that it changes
    what was shown and nothing newer.
    """

    changes: list[str]
    notes: list[str] = []
    exact: dict[str, Any] = {}
    text: str | None = None


def problem_of(error: Exception) -> Problem:
    """PURE. The error as a sentence."""
    kind = type(error).__name__
    if isinstance(error, RequestRefusedError):
        return Problem(error.status, "Refused", error.text)
    if isinstance(error, click.ClickException):
        said = error.format_message()
        if kind != "UnreachableError":
            return Problem(400, kind, said)
        # the rest of the text is for a command, which does not ask again
        return Problem(503, kind, f"{_begun(said.partition('. ')[0])}. {ASKS_AGAIN}")
    if isinstance(error, KafkaError):
        status = next((status for known, status in STATUS_OF if isinstance(error, known)), 502)
        return Problem(status, kind, words_of(error), tuple(filter(None, getattr(error, "__notes__", ()))))
    if isinstance(error, TimeoutError):
        return Problem(503, kind, f"The brokers do not answer in time. {ASKS_AGAIN}")
    if isinstance(error, OSError):
        return Problem(503, kind, f"The brokers cannot be reached: {error.strerror or error}")
    return Problem(400, kind, str(error))


def words_of(error: KafkaError) -> str:
    """PURE. What happened, where, and what to do, without the number and the name of the error code."""
    said = CODE_IN_TEXT.sub("", error.message).rstrip(".")
    call, _, _ = said.partition(": ")
    sentence = next((words for known, words in SENTENCES if isinstance(error, known)), "")
    if sentence:
        said = f"{sentence} ({call})" if call else sentence
    elif said == call and CALL.match(said):
        said = f"{said} failed"
    elif not said:
        said = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error")).capitalize()
    advice = "" if not error.advice or says(said, error.advice) else f" {error.advice}."
    return f"{_begun(said)}{'' if said.endswith(('.', '?')) else '.'}{advice}"


def _begun(said: str) -> str:
    """PURE. With a capital letter, unless it begins with the name of a partition or the like."""
    return f"{said[:1].upper()}{said[1:]}" if re.match("[a-z]+ ", said) else said


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
