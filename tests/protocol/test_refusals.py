"""Answers that refuse a request follow from the declarations of its messages."""

from __future__ import annotations

from typing import Any

import pytest
from broker.authorization.samples import sample
from semel_protocol.api import APIS
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode
from semel_protocol.fields import first_version, has_field
from semel_protocol.messages import (
    k00_produce,
    k01_fetch,
    k09_offset_fetch,
    k11_join_group,
    k19_create_topics,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k31_delete_acls,
    k42_delete_groups,
    k43_elect_leaders,
    k47_offset_delete,
    k49_alter_client_quotas,
)
from semel_protocol.refusals import error_codes, first_error, refused, refused_row, rows_of

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_api_can_be_refused_in_every_version(key: int) -> None:
    api = APIS[key]
    answer: Any = refused(sample(key), CODE, "why")
    codes = set(error_codes(answer))
    assert codes <= {CODE}
    for version in range(api.low, api.high + 1):
        decoded = api.decode_response(api.encode_response(answer, version), version)
        assert set(error_codes(decoded)) <= {CODE, ErrorCode.NONE}


def test_a_row_of_the_response_names_the_row_of_the_request() -> None:
    topic = k00_produce.ProduceRequestTopic(
        name="t",
        topic_id=b"i" * 16,
        partition_data=[k00_produce.ProduceRequestPartition(index=3, records=b"")],
    )
    request = k00_produce.ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])
    row = k00_produce.ProduceResponsePartition(index=3, error_code=CODE, base_offset=-1, error_message="why")
    expected = k00_produce.ProduceResponseTopic(name="t", topic_id=b"i" * 16, partition_responses=[row])
    assert refused(request, CODE, "why") == k00_produce.ProduceResponse(responses=[expected])
    assert refused_row(k00_produce.ProduceResponseTopic, topic, CODE, "why") == expected


def test_an_index_under_another_name_is_copied_and_offsets_are_not() -> None:
    asked = k01_fetch.FetchRequestPartition(
        partition=4, fetch_offset=9, log_start_offset=8, high_watermark=7, partition_max_bytes=1
    )
    assert refused_row(k01_fetch.FetchResponsePartition, asked, CODE) == k01_fetch.FetchResponsePartition(
        partition_index=4, error_code=CODE, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1, records=b""
    )
    epoch = k23_offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(
        partition=2, current_leader_epoch=5, leader_epoch=6
    )
    answer = refused_row(k23_offset_for_leader_epoch.OffsetForLeaderEpochResponsePartition, epoch, CODE)
    assert (answer.partition, answer.leader_epoch, answer.end_offset) == (2, -1, -1)
    deleted = k21_delete_records.DeleteRecordsRequestPartition(partition_index=1, offset=5)
    assert refused_row(k21_delete_records.DeleteRecordsResponsePartition, deleted, CODE).low_watermark == -1


def test_rows_that_are_texts_or_numbers() -> None:
    request = k42_delete_groups.DeleteGroupsRequest(groups_names=["a", "b"])
    rows = [k42_delete_groups.DeleteGroupsResponseResult(group_id=name, error_code=CODE) for name in "ab"]
    assert refused(request, CODE) == k42_delete_groups.DeleteGroupsResponse(results=rows)
    topic = k43_elect_leaders.ElectLeadersRequestTopic(topic="t", partitions=[0, 7])
    elected: Any = refused(k43_elect_leaders.ElectLeadersRequest(topic_partitions=[topic]), CODE)
    assert elected.error_code == CODE, "v1 and later"
    assert [row.partition_id for row in elected.replica_election_results[0].partition_result] == [0, 7]
    everything: Any = refused(k43_elect_leaders.ElectLeadersRequest(topic_partitions=None), CODE)
    assert everything.replica_election_results == []


def test_a_response_with_the_error_at_its_top_has_no_rows() -> None:
    assert refused(sample(ApiKey.OFFSET_DELETE), CODE) == k47_offset_delete.OffsetDeleteResponse(error_code=CODE)
    assert refused(sample(ApiKey.JOIN_GROUP), CODE) == k11_join_group.JoinGroupResponse(error_code=CODE)


def test_what_a_request_asks_for_is_not_repeated_as_a_fact() -> None:
    asked = k19_create_topics.CreateTopicsRequestTopic(
        name="t",
        num_partitions=5,
        replication_factor=3,
        assignments=[],
        configs=[k19_create_topics.CreateTopicsRequestConfig(name="a", value="b")],
    )
    row = refused_row(k19_create_topics.CreateTopicsResponseTopic, asked, CODE, "why")
    assert row == k19_create_topics.CreateTopicsResponseTopic(name="t", error_code=CODE, error_message="why")


def test_the_entity_of_a_quota_is_repeated() -> None:
    (entry,) = sample(ApiKey.ALTER_CLIENT_QUOTAS).entries
    row = refused_row(k49_alter_client_quotas.AlterClientQuotasResponseEntry, entry, CODE)
    assert [(part.entity_type, part.entity_name) for part in row.entity] == [("user", "x")]


def test_the_arrays_whose_rows_are_answered() -> None:
    assert [field.name for field in rows_of(k00_produce.ProduceRequest)] == ["topic_data", "responses"]
    assert [field.name for field in rows_of(k09_offset_fetch.OffsetFetchRequest)] == ["topics", "topics"]
    with pytest.raises(ValueError, match="no error code for each row"):
        rows_of(k11_join_group.JoinGroupRequest)


def test_the_first_error_of_a_response() -> None:
    rows = [
        k31_delete_acls.DeleteAclsResponseFilterResult(),
        k31_delete_acls.DeleteAclsResponseFilterResult(error_code=CODE),
    ]
    assert first_error(k31_delete_acls.DeleteAclsResponse(filter_results=rows)) == CODE
    assert first_error(k31_delete_acls.DeleteAclsResponse(filter_results=rows[:1])) == 0


def test_the_versions_of_a_field() -> None:
    topic = k01_fetch.FetchRequestTopic
    assert [has_field(topic, "topic", version) for version in (12, 13)] == [True, False]
    assert [has_field(topic, "topic_id", version) for version in (12, 13)] == [False, True]
    assert first_version(topic, "topic_id") == 13
    assert not has_field(topic, "other", 13)
    assert first_version(topic, "other") > 32_767
