"""Every declared message: recorded bytes of Kafka, round trips, and malformed bytes."""

import random
import string
import struct
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_protocol import messages as message_files
from semel_protocol.api import APIS, Api
from semel_protocol.api_key import ApiKey
from semel_protocol.declaration import Feature
from semel_protocol.errors import ProtocolError
from semel_protocol.fields import Array, Encoded, Kind, fields_of
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from semel_protocol.schema import Codec

CASES = Path(__file__).parent.parent / "data" / "wire-cases.txt"

EVERY_BODY = [
    pytest.param(api, side, version, id=f"{api.name}-{side}-v{version}")
    for api in APIS.values()
    for side in "QR"
    for version in range(api.low, api.high + 1)
]

_INTEGER_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


def body(api: Api, side: str, version: int) -> Codec[Any]:
    return api.request_codec(version) if side == "Q" else api.response_codec(version)


def test_kafkas_own_bytes_decode_and_encode_back_to_the_same() -> None:
    seen = 0
    for line in CASES.read_text().splitlines():
        if line.startswith("#"):
            continue
        key, side, version, text = line.split()
        data = b"" if text == "-" else bytes.fromhex(text)
        codec = body(APIS[int(key)], side, int(version))
        message, end = codec.decode_at(data)
        assert end == len(data), line[:80]
        assert codec.encode_bytes(message) == data, line[:80]
        seen += 1
    assert seen == 3383


def values(kind: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Array):
        return st.lists(values(kind.element, version), max_size=3)
    if kind is Kind.BOOL:
        return st.booleans()
    if kind in _INTEGER_BITS:
        half = 1 << (_INTEGER_BITS[kind] - 1)
        return st.integers(-half, half - 1)
    if kind is Kind.FLOAT64:
        return st.floats(allow_nan=False)
    if kind is Kind.UUID:
        return st.binary(min_size=16, max_size=16)
    if kind is Kind.STRING:
        return st.text(max_size=200)
    if isinstance(kind, Kind):
        return st.binary(max_size=200)
    return messages(kind, version)


def messages(cls: Any, version: int) -> st.SearchStrategy[Any]:
    fields = {}
    for field in fields_of(cls):
        if field.exists_in(version):
            strategy = values(field.type, version)
            if field.nullable_in(version):
                strategy = st.none() | strategy
            fields[field.name] = strategy
    return st.builds(cls, **fields)


@pytest.mark.parametrize(("api", "side", "version"), EVERY_BODY)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_what_is_encoded_decodes_to_the_same(api: Api, side: str, version: int, data: Any) -> None:
    codec = body(api, side, version)
    message = data.draw(messages(codec.cls, version))
    encoded = codec.encode_bytes(message)
    decoded, end = codec.decode_at(encoded)
    assert end == len(encoded)
    assert decoded == message
    assert codec.encode_bytes(decoded) == encoded


def sample_bodies() -> list[tuple[Api, str, int, bytes]]:
    longest: dict[tuple[int, str, int], bytes] = {}
    for line in CASES.read_text().splitlines():
        if not line.startswith("#"):
            key, side, version, text = line.split()
            data = b"" if text == "-" else bytes.fromhex(text)
            place = (int(key), side, int(version))
            if len(data) > len(longest.get(place, b"")):
                longest[place] = data
    return [(APIS[key], side, version, data) for (key, side, version), data in longest.items()]


def test_a_mutated_body_raises_only_protocol_error() -> None:
    rng = random.Random(1)
    refused = 0
    for api, side, version, data in sample_bodies():
        codec = body(api, side, version)
        for _ in range(60):
            bad = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                bad[rng.randrange(len(bad))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            try:
                codec.decode(bytes(bad[: rng.randint(0, len(bad))] if rng.random() < 0.3 else bad))
            except ProtocolError:
                refused += 1
    assert refused > 1000


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([case.values for case in EVERY_BODY]), st.binary(max_size=300))
def test_random_bytes_raise_only_protocol_error(case: Any, data: bytes) -> None:
    codec = body(*case)
    try:
        codec.decode(data)
    except ProtocolError:
        pass


def test_a_body_cut_at_any_byte_is_refused() -> None:
    for api, side, version, data in sample_bodies():
        codec = body(api, side, version)
        _, end = codec.decode_at(data)
        for cut in range(min(end, 400)):
            with pytest.raises(ProtocolError):
                codec.decode(data[:cut])


def array_headed_bodies() -> list[tuple[Api, int, bytes]]:
    """Requests whose first field is an array with a count of 2,000,000,000 elements."""
    found = []
    for api in APIS.values():
        for version in range(api.low, api.high + 1):
            first = next((f for f in fields_of(api.request) if f.exists_in(version)), None)
            if first is not None and isinstance(first.type, Array):
                flexible = api.is_flexible(version)
                found.append((api, version, b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"))
    return found


@pytest.mark.proves("large-count")
def test_a_count_above_the_remaining_bytes_allocates_no_memory() -> None:
    bodies = array_headed_bodies()
    assert len(bodies) > 20
    for api, version, head in bodies:
        codec = api.request_codec(version)
        data = head + bytes(1000)
        tracemalloc.start()
        with pytest.raises(ProtocolError):
            codec.decode(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 200_000, (api, version, peak)


@pytest.mark.proves("tagged-fields")
def test_twenty_million_tagged_fields_are_refused() -> None:
    codec = APIS[18].request_codec(3)
    with pytest.raises(ProtocolError, match="tagged fields"):
        codec.decode(b"\x02a\x02b" + bytes.fromhex("80dac409") + b"\x00\x00" * 1000)


def test_an_unknown_tagged_field_is_skipped() -> None:
    codec = APIS[18].request_codec(3)
    message = codec.decode(b"\x02a\x02b" + b"\x01" + b"\x63\x03xyz")
    assert (message.client_software_name, message.client_software_version) == ("a", "b")


def test_a_default_that_decoded_messages_share_cannot_be_changed() -> None:
    """Two requests without the tag have the same replica state; a change would make every later consumer a follower."""
    empty = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=0, topics=[])
    api = APIS[1]
    request = api.decode_request(api.encode_request(empty, 17), 17)
    with pytest.raises(AttributeError):
        request.replica_state.replica_id = 0
    assert api.decode_request(api.encode_request(empty, 17), 17).replica_state.replica_id == -1


@pytest.mark.proves("unexpected-null")
def test_null_where_it_is_not_allowed_is_refused() -> None:
    with pytest.raises(ProtocolError, match="null"):
        APIS[12].request_codec(0).decode(b"\xff\xff" + bytes(4) + b"\xff\xff")


@pytest.mark.proves("invalid-utf-8")
def test_names_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(ProtocolError):
        APIS[12].request_codec(0).decode(b"\x00\x02\xc3\x28" + bytes(4) + b"\x00\x00")


def test_a_value_that_does_not_fit_its_field_is_refused_by_the_encoder() -> None:
    heartbeat = APIS[12].request(group_id="g", generation_id=1 << 31, member_id="m")
    with pytest.raises(ProtocolError, match="cannot encode"):
        APIS[12].encode_request(heartbeat, 0)
    with pytest.raises(ProtocolError, match="cannot encode"):
        APIS[12].encode_request(APIS[12].request(group_id="x" * 40000, generation_id=1, member_id="m"), 0)


def test_records_are_not_copied() -> None:
    records = bytes(1000)
    produce = APIS[0].request_codec(7)
    out: list[Any] = []
    topic = APIS[0].request.__module__
    assert topic.endswith("k00_produce")
    from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic

    partition = ProduceRequestPartition(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[ProduceRequestTopic(name="t", partition_data=[partition])]
    )
    produce.encode(request, out)
    assert any(chunk is records for chunk in out)
    frame = b"".join(out)
    decoded = produce.decode(frame).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is frame


def test_every_api_has_the_file_and_classes_of_its_name() -> None:
    for key, api in APIS.items():
        snake = "".join("_" + c.lower() if c in string.ascii_uppercase else c for c in api.name).lstrip("_")
        assert api.request.__module__ == f"semel_protocol.messages.k{key:02d}_{snake}"
        assert api.request.__name__ == api.name + "Request"
        assert api.response.__name__ == api.name + "Response"
        assert api.advertised is None or api.advertised[0] == 0


@pytest.mark.parametrize("version", [4, 11, 12])
def test_encoded_elements_give_the_same_bytes_as_structs(version: int) -> None:
    """Also in flexible versions, where each element ends with a tag buffer."""
    codec = APIS[1].response_codec(version)
    pairs = [(7, 0), (9, 2**40)]
    rows = [FetchResponseAbortedTransaction(producer_id=pid, first_offset=first) for pid, first in pairs]
    encoded = Encoded(struct.pack(">qq", *pair) for pair in pairs)
    for plain, ready in ((rows, encoded), ([], Encoded())):
        one, other = (
            FetchResponse(
                responses=[
                    FetchResponseTopic(
                        topic="t", partitions=[FetchResponsePartition(aborted_transactions=cast("Any", given))]
                    )
                ]
            )
            for given in (plain, ready)
        )
        assert codec.encode_bytes(one) == codec.encode_bytes(other)
        assert codec.decode(codec.encode_bytes(other)) == codec.decode(codec.encode_bytes(one))


# --- declarations --------------------------------------------------------------------------------------------


def test_every_message_file_declares_the_api_of_its_name() -> None:
    files = sorted(path.stem for path in Path(message_files.__file__).parent.glob("k*.py"))
    assert files == sorted(key.file_name for key in ApiKey)
    for key in ApiKey:
        module = import_module(f"semel_protocol.messages.{key.file_name}")
        assert module.API.key == key
        assert module.API.name.upper() == key.name.replace("_", "")


def test_features_add_versions_to_those_that_are_offered() -> None:
    init = APIS[ApiKey.INIT_PRODUCER_ID]
    assert init.offered([]) == (0, 4)
    assert init.offered([Feature.TRANSACTION_VERSION_2]) == (0, 5)
    assert init.offered([Feature.TWO_PHASE_COMMIT, Feature.TRANSACTION_VERSION_2]) == (0, 6)
    heartbeat = APIS[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    assert heartbeat.offered([Feature.TELEMETRY]) is None
    assert heartbeat.offered([Feature.GROUP_VERSION_1]) == (0, 1)
