"""The answers of the admin client have the methods of aiokafka's."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol import admin as theirs
from semel.aiokafka.admin.responses import (
    DeleteTopicsResponse,
    DescribeGroupsResponse,
    ResourcesResponse,
    TopicErrorsResponse,
)


def test_the_outcomes_of_topics_can_be_read_by_name_as_faststream_does() -> None:
    assert TopicErrorsResponse(0, [("new", 0, None), ("old", 36, "there")]).to_object() == {
        "throttle_time_ms": 0,
        "topic_errors": [
            {"topic": "new", "error_code": 0, "error_message": None},
            {"topic": "old", "error_code": 36, "error_message": "there"},
        ],
    }
    assert DeleteTopicsResponse(0, [("a", 0), ("b", 3)]).to_object() == {
        "throttle_time_ms": 0,
        "topic_error_codes": [{"topic": "a", "error_code": 0}, {"topic": "b", "error_code": 3}],
    }


ALTERED = [(0, None, 2, "orders"), (40, "no such setting", 2, "returns")]
DESCRIBED = [
    (0, None, 4, "1", [("log.dir", "/data", True, 4, False, [("log.dir", "/data", 4)])]),
    (3, "gone", 2, "old", []),
]
GROUPS = [(0, "readers", "Stable", "consumer", "range", [("m-1", "app", "/127.0.0.1", b"\x00", b"\x01")], -(2**31))]


@pytest.mark.parametrize(
    ("ours", "their_class"),
    [
        (ResourcesResponse(0, ALTERED), theirs.AlterConfigsResponse_v1),
        (ResourcesResponse(0, DESCRIBED), theirs.DescribeConfigsResponse_v2),
        (DescribeGroupsResponse(7, GROUPS), theirs.DescribeGroupsResponse_v3),
    ],
    ids=["altered", "described", "groups"],
)
def test_settings_and_groups_read_by_name_are_as_those_of_aiokafka(ours: Any, their_class: Any) -> None:
    assert ours.to_object() == their_class(*ours).to_object()
