"""The table of error codes, compared with that of librdkafka."""

from __future__ import annotations

from confluent_kafka import KafkaError as Rdkafka
from semel_protocol.errors import ErrorCode, error_code

OTHER_NAMES = {
    "NO_ERROR": "NONE",
    "INVALID_MSG": "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
    "INVALID_MSG_SIZE": "INVALID_FETCH_SIZE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MSG_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "STALE_CTRL_EPOCH": "STALE_CONTROLLER_EPOCH",
    "TOPIC_EXCEPTION": "INVALID_TOPIC_EXCEPTION",
}
"""The codes with an older name in librdkafka."""


def test_codes_are_those_of_librdkafka() -> None:
    theirs = {
        name: value for name in dir(Rdkafka) if isinstance(value := getattr(Rdkafka, name), int) and name[0] != "_"
    }
    named = {OTHER_NAMES.get(name, name): value for name, value in theirs.items() if value >= 0}
    assert len(named) > 100
    assert {name: value for name, value in named.items() if name not in ErrorCode.__members__} == {}
    assert {name: int(ErrorCode[name]) for name in named} == named


def test_table_has_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))
    assert error_code(134) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_errors_that_refresh_metadata_are_retriable() -> None:
    assert [code for code in ErrorCode if code.refreshes_metadata and not code.retriable] == []
