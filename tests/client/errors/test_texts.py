"""Texts of errors: the failure, its reason, and the next step, each once."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import pytest
from semel import errors
from semel._net.calls import CallOutcomes
from semel.errors import KafkaConnectionError, KafkaError, NonEmptyGroup, NotEnoughReplicasError, error_for
from semel.errors.base import ERROR_OF
from semel_protocol.errors import ErrorCode

KINDS = [
    each
    for each in vars(errors).values()
    if inspect.isclass(each) and issubclass(each, KafkaError) and each is not errors.RecordDeserializationError
]


def repeated(text: str) -> list[str]:
    """The sentences and clauses of at least three words that stand in the text more than once."""
    parts = Counter(part.strip().lower() for part in re.split(r"[.;:?]\s|\n", text + " ") if len(part.split()) > 2)
    return [part for part, count in parts.items() if count > 1]


def test_no_error_repeats_what_its_message_says() -> None:
    for kind in KINDS:
        once = kind("produce to t-0: no answer")
        wrapped = [kind(str(once)), kind(once.message), kind(f"it did not succeed: {once}"), kind(f"{kind.advice}.")]
        again = kind(str(once))
        again.extend_message(kind.advice or "Call it again")
        again.extend_message(kind.advice or "Call it again")
        assert [str(each).count("[") for each in wrapped[:2]] == [str(once).count("[")] * 2
        for error in [once, *wrapped, again]:
            assert repeated(str(error)) == [], kind
            if kind.advice:
                assert str(error).count(kind.advice) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.NON_EMPTY_GROUP, "deleting group 'g': g has members: stop them first"),
        (
            ErrorCode.INVALID_SESSION_TIMEOUT,
            "5 ms is outside: change session.timeout.ms, or the broker's group.(min|max).session.timeout.ms",
        ),
        (ErrorCode.ILLEGAL_SASL_STATE, "this listener has no SASL: use security.protocol=PLAINTEXT or SSL"),
        (ErrorCode.STALE_BROKER_EPOCH, "broker 1 has registered again since: fetch with its new broker epoch"),
    ],
)
def test_the_advice_of_a_broker_stands_alone(code: ErrorCode, message: str) -> None:
    assert str(error_for(code, message)) == f"[{code.value} {code.name}] {message}"
    assert str(error_for(code, "it failed")).endswith(f"it failed. {ERROR_OF[code].advice}")


def test_a_batch_that_is_too_large_has_one_advice() -> None:
    """The client knows its own setting, which the broker cannot name."""
    said = "produce to t-0: the batch has 2 bytes, the topic's max.message.bytes is 1; send smaller batches"
    assert str(error_for(ErrorCode.MESSAGE_TOO_LARGE, said)) == (
        "[10 MESSAGE_TOO_LARGE] produce to t-0: the batch has 2 bytes, the topic's max.message.bytes is 1. "
        "Send smaller records, or raise max_request_size here and max.message.bytes on the topic"
    )


def test_failures_of_one_call_give_an_advice_once() -> None:
    outcomes: CallOutcomes[str, None] = CallOutcomes(["a", "b", "c"], lambda name: f"deleting topic {name!r}")
    for name in ("a", "b"):
        outcomes.refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    outcomes.refused("c", ErrorCode.INVALID_TOPIC_EXCEPTION, "c is internal")
    with pytest.raises(KafkaError) as raised:
        outcomes.results()
    text = "\n".join([str(raised.value), *raised.value.__notes__])
    assert repeated(text) == []
    assert text.count("Create the topic") == 1
    assert [name in text for name in ("'a'", "'b'", "'c'", "internal topics cannot be written")] == [True] * 4


def test_an_advice_that_only_shares_words_with_its_message_stays() -> None:
    kept = NotEnoughReplicasError("t-0: in sync are brokers [1], min.insync.replicas is 2")
    assert str(kept).endswith("Start the missing brokers, or lower min.insync.replicas")
    assert str(KafkaConnectionError("cannot connect to the broker at h:1")).count("Check that the broker runs") == 1
    assert "Stop the group's members" in str(NonEmptyGroup("deleting group 'g'"))
