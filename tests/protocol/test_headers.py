"""Headers and frames equal the recorded bytes of Kafka."""

import pytest
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode, KafkaError, ProtocolError, error_code
from semel_protocol.headers import (
    encode_request_frame,
    encode_response_frame,
    read_correlation_id,
    read_request_header,
    response_body_at,
)
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API_VERSIONS_3 = "00000015001200030000000100016300046c696204312e3000"
OFFSET_FETCH_7 = "0000001900090007000000020001630002670202740200000000000100"
INIT_PRODUCER_ID_4 = "0000001d00160004000000030001630002740000ea60ffffffffffffffffffff00"


def key(api_key: int, low: int, high: int) -> ApiVersionsResponseApiKey:
    return ApiVersionsResponseApiKey(api_key=api_key, min_version=low, max_version=high)


def test_request_frames_are_the_recorded_bytes() -> None:
    software = ApiVersionsRequest(client_software_name="lib", client_software_version="1.0")
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    fetch = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60000)
    assert b"".join(encode_request_frame(APIS[18], 3, 1, "c", software)).hex() == API_VERSIONS_3
    assert b"".join(encode_request_frame(APIS[9], 7, 2, "c", fetch)).hex() == OFFSET_FETCH_7
    assert b"".join(encode_request_frame(APIS[22], 4, 3, "c", init)).hex() == INIT_PRODUCER_ID_4


def test_response_frames_are_the_recorded_bytes() -> None:
    listed = ApiVersionsResponse(api_keys=[key(0, 0, 7), key(18, 0, 4)])
    frame = b"".join(encode_response_frame(APIS[18], 3, 1, listed))
    assert frame.hex() == "0000001a0000000100000300000000000700001200000004000000000000"
    refused = ApiVersionsResponse(error_code=35, api_keys=[key(18, 0, 4)])
    assert b"".join(encode_response_frame(APIS[18], 0, 1, refused)).hex() == "0000001000000001002300000001001200000004"
    name = "transaction.version"
    version_2 = ApiVersionsResponse(
        api_keys=[key(18, 0, 4)],
        supported_features=[ApiVersionsResponseSupportedFeature(name=name, min_version=0, max_version=2)],
        finalized_features_epoch=1,
        finalized_features=[ApiVersionsResponseFinalizedFeature(name=name, max_version_level=2, min_version_level=2)],
    )
    assert b"".join(encode_response_frame(APIS[18], 4, 1, version_2)).hex() == (
        "0000005500000001000002001200000004000000000003001a02147472616e73616374696f6e2e76657273696f6e000000020001080000"
        "000000000001021a02147472616e73616374696f6e2e76657273696f6e0002000200"
    )
    made = InitProducerIdResponse(producer_id=1234, producer_epoch=0)
    assert (
        b"".join(encode_response_frame(APIS[22], 4, 3, made)).hex()
        == "00000016000000030000000000000000000000000004d2000000"
    )


def test_a_request_header_is_read_back() -> None:
    frame = bytes.fromhex(OFFSET_FETCH_7)[4:]
    header = read_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (9, 7, 2, "c")
    request = APIS[9].decode_request(frame, 7, header.body_at(APIS[9], frame))
    assert request.group_id == "g"


def test_a_response_header_is_read_back() -> None:
    frame = b"".join(encode_response_frame(APIS[22], 4, 77, InitProducerIdResponse(producer_id=5)))[4:]
    assert read_correlation_id(frame) == 77
    response = APIS[22].decode_response(frame, 4, response_body_at(APIS[22], 4, frame))
    assert response.producer_id == 5


@pytest.mark.parametrize(
    "frame",
    [b"", bytes(9), bytes(8) + b"\x00\x05ab", bytes(8) + b"\x00\x02\xff\xfe"],
    ids=["empty", "short", "cut", "utf8"],
)
def test_a_broken_request_header_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame)


def test_a_tag_buffer_that_never_ends_is_refused() -> None:
    frame = bytes.fromhex("0012000300000001ffff") + b"\x01\x05"
    with pytest.raises(ProtocolError):
        read_request_header(frame).body_at(APIS[18], frame)


def test_error_codes_are_classified_as_kafka_does() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    assert not ErrorCode.PRODUCER_FENCED.retriable
    assert error_code(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert KafkaError(15, "the coordinator moved").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert str(KafkaError(3, "no topic t")) == "UNKNOWN_TOPIC_OR_PARTITION: no topic t"
