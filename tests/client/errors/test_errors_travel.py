"""Exceptions of all packages keep type, text and facts in pickle, copies and other processes; so do public values."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import semel
from semel import errors, structs
from semel.admin import Acl, NewTopic, Operation, PatternType, Permission, ResourceType
from semel.errors import KafkaError, RecordDeserializationError
from semel.structs import ConsumerRecord, GroupStep, PreparedTransaction, RecordMetadata, TopicPartition
from semel_protocol.errors import ErrorCode
from semel_protocol.errors import KafkaError as ProtocolKafkaError
from semel_protocol.pipelining import UnexpectedAnswerError

PACKAGES = ("semel", "semel_protocol", "semel_storage", "semel_broker", "semel_console", "pyspark_semel")
WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda each: pickle.loads(pickle.dumps(each)),
    "pickle 2": lambda each: pickle.loads(pickle.dumps(each, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
RECORD = ConsumerRecord("t", 0, 5, 1, 0, b"k", b"v", None, 1, 1, (("h", b"x"),))


def exception_classes() -> Iterator[type[BaseException]]:
    for package in PACKAGES:
        found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        for module in [importlib.import_module(each.name) for each in found if "__main__" not in each.name]:
            for value in vars(module).values():
                if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == module.__name__:
                    yield value


def facts(error: BaseException, names: Iterable[str] | None = None) -> tuple[Any, ...]:
    """names: the attributes to compare; None: all of them."""
    attributes = {name: getattr(error, name) for name in names or vars(error) if name != "__cause__"}
    return type(error), str(error), repr(error), error.args, attributes


def constructed(kind: type[KafkaError]) -> KafkaError:
    error = kind("produce to t-0: no answer")
    error.add_note("and another")
    return error


def test_every_exception_class_keeps_its_facts() -> None:
    classes = list(dict.fromkeys(exception_classes()))
    assert len(classes) > 200
    lost = []
    for kind in classes:
        error = kind.__new__(kind, "what failed")
        error.args = ("what failed",)
        error.message, error.fact = "what failed", 5  # type: ignore[attr-defined]
        error.add_note("and another")
        lost += [(kind, way) for way, travel in WAYS.items() if facts(travel(error), vars(error)) != facts(error)]
    assert lost == []


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_the_client_keep_their_texts(way: str) -> None:
    kinds = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, KafkaError)]
    kinds.remove(RecordDeserializationError)
    assert len(kinds) > 100
    for error in map(constructed, kinds):
        there = WAYS[way](error)
        assert facts(there) == facts(error)
        assert (there.message, there.__notes__) == (error.message, error.__notes__)
        error.extend_message("Call it again")
        assert facts(WAYS[way](error)) == facts(error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [
        RecordDeserializationError("value", RECORD, ValueError("no JSON")),
        ProtocolKafkaError(ErrorCode.NOT_COORDINATOR, "it moved"),
        UnexpectedAnswerError(5, 4),
    ],
)
def test_errors_made_of_other_facts_keep_them(way: str, error: Exception) -> None:
    assert facts(WAYS[way](error)) == facts(error)


@pytest.mark.parametrize("way", WAYS)
def test_the_cause_of_a_failed_transaction_travels_along(way: str) -> None:
    error = errors.TransactionHasFailed("produce to t-0 failed")
    error.__cause__ = errors.MessageSizeTooLargeError("produce to t-0")
    there = WAYS[way](error).__cause__
    assert facts(there) == facts(error.__cause__)


def raises(number: int) -> None:
    if number == 0:
        raise RecordDeserializationError("key", RECORD, LookupError("no schema"))
    raise errors.error_for(number, "produce to t-0")


@pytest.mark.real_time
def test_errors_reach_the_parent_of_a_process_pool() -> None:
    """The processes are forked: it takes a fraction of a second."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        for number in (0, 10, 90, 999):
            with pytest.raises(KafkaError) as expected:
                raises(number)
            with pytest.raises(type(expected.value)) as there:
                pool.submit(raises, number).result()
            assert facts(there.value) == facts(expected.value)
            assert "raise" in "".join(traceback.format_exception(there.value))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "value",
    [
        RECORD,
        TopicPartition("t", 0),
        structs.OffsetAndMetadata(5, "m"),
        structs.OffsetAndTimestamp(5, 1),
        structs.ConsumerGroupMetadata("g", 3, "m", None, ((TopicPartition("t", 0), bytes(16)),)),
        RecordMetadata("t", 0, 5, 1, 0, 0),
        GroupStep("g", 3, "token", 2),
        PreparedTransaction("g/1", 5, 0, 3),
        structs.Metadata({0: structs.BrokerMetadata(0, "h", 1)}, {"t": structs.TopicMetadata("t", ())}),
        NewTopic("t", 1, topic_configs={"a": "b"}),
        Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW),
        semel.admin.AclFilter(),
        semel.admin.QuotaEntity(user="a"),
    ],
)
def test_public_values_travel(way: str, value: Any) -> None:
    there = WAYS[way](value)
    assert (type(there), there) == (type(value), value)
