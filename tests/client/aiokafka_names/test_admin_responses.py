"""The answers of the admin client have the methods of aiokafka's."""

from __future__ import annotations

from semel.aiokafka.admin.responses import DeleteTopicsResponse, TopicErrorsResponse


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
