"""The pipeline of requests: ids, the order of answers, and the requests that stay pending after an error."""

from __future__ import annotations

import pytest
from semel_protocol.api import API_OF
from semel_protocol.errors import ErrorCode, ProtocolError
from semel_protocol.headers import encode_response_frame
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel_protocol.pipelining import CORRELATION_ID_MAX, PendingRequest, RequestPipeline, UnexpectedAnswerError

METADATA, API_VERSIONS = API_OF[MetadataRequest], API_OF[ApiVersionsRequest]


def begun(pipeline: RequestPipeline[PendingRequest], count: int) -> list[PendingRequest]:
    requests = [PendingRequest(METADATA, 1) for _ in range(count)]
    for request in requests:
        pipeline.begin(request, MetadataRequest(topics=[]))
    return requests


def answer_to(correlation_id: int, controller_id: int = 0) -> bytes:
    return b"".join(encode_response_frame(METADATA, 1, correlation_id, MetadataResponse(controller_id=controller_id)))[
        4:
    ]


def test_answers_belong_to_the_requests_in_the_order_sent() -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    requests = begun(pipeline, 3)
    assert [request.correlation_id for request in requests] == [1, 2, 3]
    for request in requests:
        answered, response = pipeline.answered(answer_to(request.correlation_id, 10 + request.correlation_id))
        assert answered is request
        assert response.controller_id == 10 + request.correlation_id
    assert not pipeline.pending


def test_a_request_without_answer_takes_an_id_and_is_not_pending() -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    pipeline.encode(METADATA, 1, MetadataRequest(topics=[]))
    assert not pipeline.pending
    assert begun(pipeline, 1)[0].correlation_id == 2


@pytest.mark.parametrize(("pending", "expected"), [(0, None), (2, 1)])
def test_an_answer_out_of_order_is_refused(pending: int, expected: int | None) -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    begun(pipeline, pending)
    with pytest.raises(UnexpectedAnswerError, match="request 2 is not due") as refused:
        pipeline.answered(answer_to(2))
    assert (refused.value.correlation_id, refused.value.expected) == (2, expected)
    assert len(pipeline.pending) == pending


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", answer_to(1)[:-1]])
def test_a_request_stays_pending_when_its_answer_cannot_be_decoded(frame: bytes) -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    begun(pipeline, 1)
    with pytest.raises(ProtocolError):
        pipeline.answered(frame)
    assert len(pipeline.pending) == 1


def test_a_request_whose_message_does_not_fit_is_not_pending() -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    with pytest.raises(ProtocolError):
        pipeline.begin(PendingRequest(METADATA, 0), MetadataRequest(topics=None))
    assert not pipeline.pending


def test_unsupported_version_of_api_versions_is_read_in_version_0() -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    pipeline.begin(PendingRequest(API_VERSIONS, 4), ApiVersionsRequest())
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    _, response = pipeline.answered(b"".join(encode_response_frame(API_VERSIONS, 0, 1, refusal))[4:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_correlation_ids_stay_positive() -> None:
    pipeline: RequestPipeline[PendingRequest] = RequestPipeline("test")
    pipeline._correlation_id = CORRELATION_ID_MAX
    assert begun(pipeline, 1)[0].correlation_id == 0
