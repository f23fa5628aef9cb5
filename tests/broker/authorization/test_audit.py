"""The audit log has a line for each refused or administrative request, with the rule that decided, and no secret."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.authorization.samples import error_codes, sample
from broker.authorization.test_rules import UNREFUSED, allow, guarded
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from semel_broker.authorization.audit_log import LINES_MAX, LIST_MAX, SENDERS_MAX, TEXT_MAX, WINDOW_S, AuditLog
from semel_broker.authorization.requirements import REFUSAL_OF
from semel_broker.handlers import AUDITS, HANDLERS, NEEDS, NOT_AUDITED
from semel_broker.node import FETCH, _handlers
from semel_protocol.acls import Operation, PatternType, ResourceType
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import (
    k03_metadata,
    k19_create_topics,
    k20_delete_topics,
    k30_create_acls,
    k31_delete_acls,
    k33_alter_configs,
    k44_incremental_alter_configs,
    k20002_decide_transaction_group,
)

CHANGING = {
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.ALTER_CONFIGS,
    Operation.CLUSTER_ACTION,
}
GIVEN: dict[int, Any] = {
    3: k03_metadata.MetadataRequest(
        topics=[k03_metadata.MetadataRequestTopic(name="fresh")], allow_auto_topic_creation=True
    )
}
"""Samples that change nothing, in a form that changes something."""


def lines(harness: Harness) -> list[dict[str, Any]]:
    return [json.loads(line) for line in harness.audit]


async def audited(start_broker: StartBroker, **settings: str) -> Harness:
    """A broker without authorizer, and with the topic `t`."""
    harness = await start_broker(durability="os", audit_log_file="-", group_initial_rebalance_delay_ms="0", **settings)
    assert harness.node is not None
    await harness.node.broker.topics.ensure("t")
    return harness


# --- the tables


def test_every_api_is_audited_or_has_the_reason_why_not() -> None:
    assert set(AUDITS) | set(NOT_AUDITED) == set(NEEDS)
    assert not set(AUDITS) & set(NOT_AUDITED)
    assert all(NOT_AUDITED.values())


@pytest.mark.parametrize("key", sorted(NEEDS))
def test_an_api_that_needs_the_right_to_change_something_is_audited(key: int) -> None:
    needs = {operation for requirement in NEEDS[key] for operation, _, _ in requirement.needs}
    assert key in AUDITS or not needs & CHANGING


@pytest.mark.parametrize("key", sorted(AUDITS))
async def test_every_administrative_request_has_a_line_in_every_version(start_broker: StartBroker, key: int) -> None:
    harness = await audited(start_broker, authorizer_class_name="")
    advertised = APIS[key].advertised
    assert advertised is not None
    wire = await harness.wire()
    for version in range(APIS[key].low, advertised[1] + 1):
        harness.audit.clear()
        topic = f"fresh-{version}"
        request = GIVEN.get(key) or sample(key)
        if key == 3:
            request.topics[0].name = topic
        answer = await wire.call(request, version)
        (line,) = lines(harness)
        assert line["decision"] == "allowed"
        assert (line["api"], line["api_version"]) == (APIS[key].name, version)
        assert (line["principal"], line["host"], line["client_id"]) == ("User:ANONYMOUS", "127.0.0.1", "wire")
        assert (line["listener"], line["rule"]) == ("PLAINTEXT", "no authorizer")
        assert line["time"].endswith("Z")
        assert line["resource"]
        codes = {code.name for code in error_codes(answer)}
        assert line["error"] in codes or (not codes and line["error"] == "NONE")
        assert (line["error"] == "NONE") == (codes <= {"NONE"})


@pytest.mark.parametrize("key", sorted(set(HANDLERS) - UNREFUSED))
async def test_every_refused_request_has_a_line(start_broker: StartBroker, key: int) -> None:
    harness = await guarded(start_broker, audit_log_file="-")
    await (await harness.wire()).call(sample(key))
    found = lines(harness)
    assert found
    for line in found:
        assert line["decision"] == "denied"
        assert line["api"] == APIS[key].name
        assert ErrorCode[line["error"]] in REFUSAL_OF.values()
        assert line["rule"].startswith("no ACL for the resource")
        assert line["operation"] in Operation.__members__
        assert line["resource_type"] in ResourceType.__members__


@pytest.mark.parametrize("key", [22, 24, 25, 26, 28])
async def test_refusals_in_transactions_name_the_transactional_id(start_broker: StartBroker, key: int) -> None:
    harness = await guarded(start_broker, audit_log_file="-")
    await (await harness.wire()).call(sample(key))
    assert {line["transactional_id"] for line in lines(harness)} == {"x"}


# --- what a line says


async def test_the_rule_is_the_acl_that_decided(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-")
    await allow(harness, Operation.DELETE, ResourceType.TOPIC, "or", PatternType.PREFIXED)
    wire = await harness.wire()
    await wire.call(k20_delete_topics.DeleteTopicsRequest(topic_names=["orders", "t"], timeout_ms=1000))
    denied, allowed = lines(harness)
    assert (denied["resource"], denied["decision"], denied["error"]) == ("t", "denied", "TOPIC_AUTHORIZATION_FAILED")
    assert (allowed["resource"], allowed["error"]) == ("orders", "UNKNOWN_TOPIC_OR_PARTITION")
    assert allowed["rule"] == "ALLOW DELETE on TOPIC prefixed 'or' to User:ANONYMOUS from *"


async def test_a_super_user_is_the_rule(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-", super_users="User:ANONYMOUS")
    await (await harness.wire()).call(sample(42))
    (line,) = lines(harness)
    assert (line["resource_type"], line["resource"], line["rule"]) == ("GROUP", "g", "super user")


async def test_a_topic_deleted_by_its_id_has_its_name(start_broker: StartBroker) -> None:
    harness = await audited(start_broker)
    assert harness.node is not None
    topic = harness.node.broker.topics.required("t")
    row = k20_delete_topics.DeleteTopicsRequestTopic(name=None, topic_id=topic.topic_id)
    request = k20_delete_topics.DeleteTopicsRequest(topics=[row], timeout_ms=1000)
    (deed,) = AUDITS[20].deeds(request, cast("Any", SimpleNamespace(broker=harness.node.broker)))
    answered = k20_delete_topics.DeleteTopicsResponseTopic(name="t", topic_id=row.topic_id, error_code=7)
    response = k20_delete_topics.DeleteTopicsResponse(responses=[answered])
    assert deed.name == "t"
    assert AUDITS[20].codes(response, [deed])[deed.key] == 7


async def test_acls_are_named_as_they_are_created_and_deleted(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-", super_users="User:ANONYMOUS")
    wire = await harness.wire()
    await wire.call(sample(30))
    await wire.call(sample(31))
    created, deleted = lines(harness)
    text = "ALLOW READ on TOPIC 't' to User:x from *"
    assert created["changes"] == [text]
    assert deleted["changes"] == [f"without {text}"]
    assert isinstance(sample(30), k30_create_acls.CreateAclsRequest)
    assert isinstance(sample(31), k31_delete_acls.DeleteAclsRequest)


async def test_a_request_that_only_validates_has_no_line(start_broker: StartBroker) -> None:
    harness = await audited(start_broker)
    wire = await harness.wire()
    for key in (19, 33, 37, 44):
        request = sample(key)
        request.validate_only = True
        await wire.call(request)
    assert not harness.audit


@pytest.mark.proves("secrets-shown")
async def test_no_value_of_a_setting_and_no_token_is_in_a_line(start_broker: StartBroker) -> None:
    secret = "hunter2"
    harness = await audited(start_broker)
    wire = await harness.wire()
    names = ("ssl.key.password", "ssl.keystore.key", "retention.ms", "nonsense")
    replaced = [k33_alter_configs.AlterConfigsRequestConfig(name=name, value=secret) for name in names]
    edited = [
        k44_incremental_alter_configs.IncrementalAlterConfigsRequestConfig(
            name=name, config_operation=number, value=secret
        )
        for number, name in enumerate(names)
    ]
    set_at_creation = [k19_create_topics.CreateTopicsRequestConfig(name=name, value=secret) for name in names]
    for kind, name in ((2, "t"), (4, "0"), (4, "")):
        row = k33_alter_configs.AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=replaced)
        await wire.call(k33_alter_configs.AlterConfigsRequest(resources=[row], validate_only=False))
        edit = k44_incremental_alter_configs.IncrementalAlterConfigsRequestResource(
            resource_type=kind, resource_name=name, configs=edited
        )
        await wire.call(
            k44_incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[edit], validate_only=False)
        )
    topic = k19_create_topics.CreateTopicsRequestTopic(
        name="u", num_partitions=1, replication_factor=1, assignments=[], configs=set_at_creation
    )
    await wire.call(k19_create_topics.CreateTopicsRequest(topics=[topic], validate_only=False))
    await wire.call(
        k20002_decide_transaction_group.DecideTransactionGroupRequest(
            group="s", group_epoch=1, token=secret, committed=True
        )
    )
    assert len(harness.audit) == 8
    assert secret not in "".join(harness.audit)
    assert lines(harness)[0]["changes"][0] == "ssl.key.password is set"


async def test_text_of_a_client_cannot_make_a_line_of_its_own_or_fill_the_disk(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-")
    wire = await harness.wire()
    name = 'x"}\n{"decision":"allowed\u202e' + "y" * 20_000
    wire.send(k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=name)]), client_id=name)
    await wire.receive()
    (text,) = harness.audit
    assert text.isprintable()
    line = json.loads(text)
    assert line["resource"] == line["client_id"] == name[:TEXT_MAX] + "…"


# --- settings


async def test_without_the_setting_nothing_is_in_the_way_of_a_request(start_broker: StartBroker) -> None:
    harness = await start_broker(durability="os")
    assert harness.node is not None
    handlers = _handlers(harness.node.broker, None)
    assert all(handlers[key] is handler for key, handler in HANDLERS.items() if key != FETCH)


async def test_none_leaves_the_refusals(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-", audit_log_allowed="none")
    wire = await harness.wire()
    await wire.call(sample(42))
    await allow(harness, Operation.DELETE, ResourceType.GROUP, "g")
    await wire.call(sample(42))
    assert [line["decision"] for line in lines(harness)] == ["denied"]


async def test_all_has_a_line_for_what_is_not_administrative_too(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-", audit_log_allowed="all", super_users="User:ANONYMOUS")
    wire = await harness.wire()
    for key in (0, 42):
        await wire.call(sample(key))
    assert [(line["api"], line["decision"]) for line in lines(harness)] == [
        ("Produce", "allowed"),
        ("DeleteGroups", "allowed"),
    ]


# --- bounds


class AuditClock:
    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.later: list[Any] = []
        self.audit = AuditLog(lambda line: self.written.append(json.loads(line)), lambda: 0, self.call_later)

    def call_later(self, seconds: float, call: Any) -> object:
        self.later.append(call)
        return self

    def fail(self, *, host: str = "h", principal: str = "p", listener: str = "l") -> None:
        self.audit.authentication_failed(host, listener, "SSL", "bad", principal=principal)


async def test_a_flood_of_one_refusal_has_two_lines(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-")
    wire = await harness.wire()
    for _ in range(500):
        await wire.call(sample(42))
    first, last = lines(harness)[0], None
    assert len(harness.audit) == 1
    await harness.stop()
    (_, last) = lines(harness)
    assert (last["times"], last["since"]) == (499, first["time"])
    del last["times"], last["since"]
    assert {**last, "time": ""} == {**first, "time": ""}


def test_a_window_ends_and_begins_again() -> None:
    clock = AuditClock()
    for _ in range(3):
        clock.fail()
    (end,) = clock.later
    end()
    assert [line.get("times") for line in clock.written] == [None, 2]
    clock.fail()
    assert len(clock.later) == 2
    assert clock.written[-1].get("times") is None
    clock.later[1]()
    assert len(clock.written) == 3, "nothing was counted"
    assert WINDOW_S >= 1


def test_different_refusals_of_one_sender_are_counted_together_above_a_bound() -> None:
    clock = AuditClock()
    for number in range(1_000):
        clock.fail(listener=str(number))
    clock.fail(principal="other")
    assert len(clock.written) == LINES_MAX + 1, "another sender has its lines"
    clock.later[0]()
    assert (clock.written[-1]["times"], clock.written[-1]["principal"]) == (1_000 - LINES_MAX, "p")


def test_senders_without_end_do_not_fill_memory_or_disk() -> None:
    clock = AuditClock()
    for number in range(3 * SENDERS_MAX):
        clock.fail(host=str(number))
    assert len(clock.audit._refused) == SENDERS_MAX + 1
    assert len(clock.written) == SENDERS_MAX + LINES_MAX
    clock.later[0]()
    assert (clock.written[-1]["principal"], clock.written[-1]["times"]) == ("*", 2 * SENDERS_MAX - LINES_MAX)


async def test_a_long_request_has_a_line_of_bounded_length(start_broker: StartBroker) -> None:
    harness = await audited(start_broker)
    wire = await harness.wire()
    request = sample(20_002)
    row = k20002_decide_transaction_group.DecideTransactionGroupRequestTransaction
    request.transactions = [row(transactional_id=f"s/{n}", producer_id=n, producer_epoch=0) for n in range(500)]
    await wire.call(request)
    (line,) = lines(harness)
    assert len(line["changes"]) == LIST_MAX + 1
    assert line["changes"][-1] == f"and {500 - LIST_MAX} more"


async def test_the_handler_of_a_refused_request_has_no_line_as_allowed(start_broker: StartBroker) -> None:
    """OffsetDelete needs two rights: with one of them it is refused, and has the one line."""
    harness = await guarded(start_broker, audit_log_file="-")
    await allow(harness, Operation.DELETE, ResourceType.GROUP, "g")
    wire: Wire = await harness.wire()
    await wire.call(sample(47))
    (line,) = lines(harness)
    assert (line["decision"], line["resource_type"]) == ("denied", "TOPIC")
