"""The requests that AlterClientQuotas and DescribeClientQuotas refuse."""

from __future__ import annotations

import math

import pytest
from semel_broker.security.quotas.validation import edited, entity_of, filter_of
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import DEFAULT, QuotaEntity, QuotaFilter

ALICE, HOST = QuotaEntity(user="alice"), QuotaEntity(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ([("user", "alice")], ALICE),
        ([("client-id", None), ("user", "alice")], QuotaEntity(user="alice", client_id=DEFAULT)),
        ([("ip", None)], QuotaEntity(ip=DEFAULT)),
        ([("ip", "2001:DB8::0:1")], QuotaEntity(ip="2001:db8::1")),
        ([("ip", "::ffff:10.0.0.1")], HOST),
    ],
)
def test_entities(parts: list[tuple[str, str | None]], entity: QuotaEntity) -> None:
    assert entity_of(parts) == entity


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "empty"),
        ([("group", "g")], "no entity type"),
        ([("user", "")], "empty"),
        ([("user", "a"), ("user", "b")], "twice"),
        ([("user", "a"), ("ip", "10.0.0.1")], "no user"),
        ([("ip", "broker.example")], "not an IP address"),
    ],
)
def test_entities_that_mean_nothing_are_refused(parts: list[tuple[str, str | None]], words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refused:
        entity_of(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key", "value", "words"),
    [
        (ALICE, "producer_rate", 1.0, "no quota"),
        (ALICE, "connection_creation_rate", 1.0, "no quota"),
        (HOST, "producer_byte_rate", 1.0, "no quota"),
        (ALICE, "producer_byte_rate", 0.0, "greater than 0"),
        (ALICE, "request_percentage", -1.0, "greater than 0"),
        (ALICE, "request_percentage", math.nan, "greater than 0"),
        (ALICE, "consumer_byte_rate", math.inf, "greater than 0"),
        (ALICE, "consumer_byte_rate", 1.5, "whole number"),
        (HOST, "connection_creation_rate", 0.25, "whole number"),
        (HOST, "connection_creation_rate", 2.0**31, "too large"),
        (ALICE, "producer_byte_rate", 2.0**64, "too large"),
    ],
)
def test_quotas_that_mean_nothing_are_refused(entity: QuotaEntity, key: str, value: float, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refused:
        edited(entity, {}, [(key, value, False)])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_quotas_are_set_replaced_and_removed() -> None:
    before = {"producer_byte_rate": 1.0, "request_percentage": 0.5}
    ops = [
        ("producer_byte_rate", 2.0000001, False),
        ("request_percentage", 0.0, True),
        ("consumer_byte_rate", 0.0, True),
    ]
    assert edited(ALICE, before, ops) == {"producer_byte_rate": 2.0}
    assert before == {"producer_byte_rate": 1.0, "request_percentage": 0.5}


def test_a_quota_changed_twice_is_refused() -> None:
    ops = [("producer_byte_rate", 2.0, False), ("producer_byte_rate", 0.0, True)]
    with pytest.raises(KafkaError, match="twice"):
        edited(ALICE, {}, ops)


def test_filters() -> None:
    components = [("user", 0, "alice"), ("client-id", 1, None)]
    assert filter_of(components, strict=True) == QuotaFilter(user="alice", client_id=DEFAULT, strict=True)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, "a"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "a"), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_mean_nothing_are_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        filter_of(components, strict=False)
    assert refused.value.code is code
