"""`audit.log.required`: while the audit log cannot be written, requests that need a line in it are refused."""

from __future__ import annotations

from typing import Any

import pytest
from broker.authorization.samples import error_codes, sample
from broker.authorization.test_audit import GIVEN, AuditClock, audited, lines
from broker.authorization.test_rules import UNREFUSED, guarded
from broker.conftest import StartBroker
from broker.harness import Harness
from semel_broker.authorization.audit_refusal import CODE_OF, WHY
from semel_broker.config.loading import load
from semel_broker.config.settings import ConfigError
from semel_broker.handlers import AUDITS, NOT_AUDITED
from semel_broker.handlers.api_versions import offered
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import k03_metadata, k19_create_topics

pytestmark = pytest.mark.proves("lost-lines")

METADATA = 3
UNSENT = {17, 36, 71, 72}
"""APIs of logins, and of metrics that these brokers do not take."""
LISTINGS = {key for key in NOT_AUDITED if key in UNREFUSED}


def state(harness: Harness) -> Any:
    """The state that administrative requests can change, as far as the samples reach."""
    assert harness.node is not None
    broker = harness.node.broker
    partition = broker.topics.partition("t", 0)
    return broker.topics.names(), partition.log.end_offset, partition.log.start_offset, dict(broker.feed.image.configs)


@pytest.mark.parametrize("has_authorizer", [False, True])
@pytest.mark.parametrize("key", sorted(set(AUDITS) - {METADATA}))
async def test_administrative_requests_are_refused_in_every_version_before_anything_is_done(
    start_broker: StartBroker, key: int, has_authorizer: bool
) -> None:
    if has_authorizer:
        harness = await guarded(start_broker, audit_log_file="-", super_users="User:ANONYMOUS")
    else:
        harness = await audited(start_broker)
    assert harness.node is not None
    broker = harness.node.broker
    wire = await harness.wire()
    before = state(harness)
    harness.audit_is_behind = True
    versions = range(APIS[key].low, offered(broker.config)[key][1] + 1)
    for version in versions:
        answer = await wire.call(sample(key, broker.topics.required("t").topic_id), version)
        codes = set(error_codes(answer)) - {ErrorCode.NONE}
        assert codes, f"{APIS[key].name} v{version}: {answer}"
        assert codes <= set(CODE_OF.values()), f"{APIS[key].name} v{version}: {codes}"
    assert lines(harness) == []
    assert state(harness) == before
    assert broker.counters.security.refused_for_audit == len(versions)
    harness.audit_is_behind = False
    answer = await wire.call(sample(key, broker.topics.required("t").topic_id))
    assert not set(error_codes(answer)) & {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert lines(harness)


async def test_the_reason_is_in_the_answer(start_broker: StartBroker) -> None:
    harness = await audited(start_broker)
    harness.audit_is_behind = True
    answer = await (await harness.wire()).call(sample(19))
    assert isinstance(answer, k19_create_topics.CreateTopicsResponse)
    assert [(row.error_code, row.error_message) for row in answer.topics] == [(ErrorCode.KAFKA_STORAGE_ERROR, WHY)]


async def test_metadata_creates_no_topic_and_has_the_others(start_broker: StartBroker) -> None:
    harness = await audited(start_broker)
    wire = await harness.wire()
    harness.audit_is_behind = True
    for version in range(APIS[METADATA].low, offered(load())[METADATA][1] + 1):
        request = GIVEN[METADATA]
        request.topics = [k03_metadata.MetadataRequestTopic(name=name) for name in ("t", f"fresh-{version}")]
        request.allow_auto_topic_creation = True
        answer = await wire.call(request, version)
        assert isinstance(answer, k03_metadata.MetadataResponse)
        codes = {row.name: row.error_code for row in answer.topics}
        assert codes == {"t": ErrorCode.NONE, f"fresh-{version}": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert lines(harness) == []


async def test_requests_without_a_line_continue(start_broker: StartBroker) -> None:
    harness = await audited(start_broker)
    wire = await harness.wire()
    harness.audit_is_behind = True
    request = sample(19)
    request.validate_only = True
    await wire.call(request)
    for key in sorted(NOT_AUDITED):
        if key in UNSENT:
            continue
        answer = await wire.call(sample(key))
        assert ErrorCode.KAFKA_STORAGE_ERROR not in set(error_codes(answer)), APIS[key].name
    assert harness.node is not None
    assert harness.node.broker.topics.partition("t", 0).log.end_offset == 1, "the sample of Produce was appended"
    assert harness.node.broker.counters.security.refused_for_audit == 0


@pytest.mark.parametrize("key", sorted(set(NOT_AUDITED) - LISTINGS - UNSENT))
async def test_with_all_every_request_that_names_a_resource_is_refused_in_every_version(
    start_broker: StartBroker, key: int
) -> None:
    harness = await guarded(start_broker, audit_log_file="-", audit_log_allowed="all", super_users="User:ANONYMOUS")
    wire = await harness.wire()
    assert harness.node is not None
    broker = harness.node.broker
    topic_id = broker.topics.required("t").topic_id
    for version in range(APIS[key].low, offered(broker.config)[key][1] + 1):
        harness.audit.clear()
        await wire.call(sample(key, topic_id), version)
        end, has_line = broker.topics.partition("t", 0).log.end_offset, bool(harness.audit)
        harness.audit.clear()
        harness.audit_is_behind = True
        answer = await wire.call(sample(key, topic_id), version)
        harness.audit_is_behind = False
        assert harness.audit == []
        assert broker.topics.partition("t", 0).log.end_offset == end
        codes = set(error_codes(answer)) & set(CODE_OF.values())
        assert bool(codes) == has_line or (key == 35 and version < 3), f"{APIS[key].name} v{version}: {answer}"


async def test_produce_without_an_answer_closes_the_connection(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, audit_log_file="-", audit_log_allowed="all", super_users="User:ANONYMOUS")
    wire = await harness.wire()
    harness.audit_is_behind = True
    request = sample(0)
    request.acks = 0
    wire.send(request, 9)
    assert await wire.reader.read() == b""
    assert [line["reason"] for line in harness.log.of("connection_closed")] == ["audit_log_not_written"]


def test_refusals_are_counted_meanwhile_and_have_their_lines_afterwards() -> None:
    clock = AuditClock()
    behind = True
    clock.audit.is_behind = lambda: behind
    for _ in range(3):
        clock.fail()
    clock.fail(host="other")
    clock.later.pop(0)()
    assert clock.written == [], "still behind: the window continues"
    behind = False
    clock.fail()
    clock.fail(host="third")
    clock.later.pop(0)()
    told = {(line["host"], line.get("times")) for line in clock.written}
    assert told == {("h", 4), ("other", 1), ("third", None)}
    assert not clock.later


def test_the_setting_needs_an_audit_log() -> None:
    with pytest.raises(ConfigError, match=r"audit\.log\.required is given without audit\.log\.file; give both"):
        load(overrides=["audit.log.required=true"])
    assert load(overrides=["audit.log.required=true", "audit.log.file=-"]).audit_log_required


def test_every_code_is_one_that_clients_try_again() -> None:
    assert set(CODE_OF.values()) == {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
