"""Moving over from aiokafka is a change of import: the same methods, arguments, settings and errors, or listed here."""

from __future__ import annotations

import inspect

import aiokafka
import aiokafka.errors
import pytest
from semel import Producer, RecordMetadata, errors
from semel.aiokafka import AIOKafkaProducer
from semel_protocol.errors import ErrorCode

KERBEROS = {"sasl_kerberos_service_name", "sasl_kerberos_domain_name"}
DEPRECATED = {"loop", "api_version"}


def test_every_setting_has_its_name() -> None:
    theirs = set(inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters)
    assert theirs - set(inspect.signature(Producer.__init__).parameters) == KERBEROS | DEPRECATED


def test_every_method_has_its_name_and_its_arguments_in_order() -> None:
    assert issubclass(AIOKafkaProducer, Producer)
    for name, method in inspect.getmembers(aiokafka.AIOKafkaProducer, inspect.isfunction):
        if name.startswith("_"):
            continue
        ours = inspect.signature(getattr(Producer, name)).parameters
        assert list(ours) == list(inspect.signature(method).parameters), name


def test_metadata_of_a_record_has_their_fields() -> None:
    assert all(hasattr(RecordMetadata, field) for field in aiokafka.structs.RecordMetadata._fields)


@pytest.mark.parametrize(
    "name",
    [
        "CommitFailedError",
        "ConsumerStoppedError",
        "GroupCoordinatorNotAvailableError",
        "IllegalOperation",
        "IllegalStateError",
        "KafkaConnectionError",
        "KafkaError",
        "KafkaTimeoutError",
        "MessageSizeTooLargeError",
        "NoOffsetForPartitionError",
        "OffsetOutOfRangeError",
        "OutOfOrderSequenceNumber",
        "ProducerClosed",
        "ProducerFenced",
        "RecordTooLargeError",
        "TopicAuthorizationFailedError",
        "UnknownTopicOrPartitionError",
        "UnsupportedVersionError",
    ],
)
def test_errors_that_are_caught_have_their_names(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.KafkaError)
    assert hasattr(aiokafka.errors, name)


def test_errors_of_the_same_code_have_the_same_name() -> None:
    ours = {int(code): cls.__name__ for code, cls in errors.ERROR_OF.items()}
    theirs = {code: cls.__name__ for code, cls in aiokafka.errors.kafka_errors.items()}
    assert {theirs[code] for code in ours.keys() & theirs.keys() if ours[code] != theirs[code]} == {
        "UnsupportedVersionError",
        "StaleLeaderEpochCodeError",  # 13, which is NETWORK_EXCEPTION
    }
    assert issubclass(errors.ERROR_OF[ErrorCode.UNSUPPORTED_VERSION], errors.UnsupportedVersionError)
