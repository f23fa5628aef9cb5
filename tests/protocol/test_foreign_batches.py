"""semel reads batches of aiokafka and kafka-python, and they read batches of semel, with all codecs."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from protocol.record_strategies import record_lists
from semel_protocol.batch import check_produced, stamp
from semel_protocol.compression import CODECS
from semel_protocol.records import Record, build_batch, decode_batch

CODEC_IDS = sorted(CODECS.values())
BUILDERS = [AiokafkaBuilder, KafkaPythonBuilder]
READERS = [AiokafkaBatch, KafkaPythonBatch]


def foreign(builder_class: type, records: list[Record], codec: int) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=9,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 30,
    )
    for record in records:
        assert builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def ours(records: list[Record], codec: int) -> bytes:
    state = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 3, "is_transactional": True}
    return build_batch(records, codec=codec, **state)


@pytest.mark.parametrize("builder_class", BUILDERS)
@settings(max_examples=40)
@given(records=record_lists(max_size=8), codec=st.sampled_from(CODEC_IDS))
def test_batches_of_other_clients_decode(builder_class: type, records: list[Record], codec: int) -> None:
    batch = foreign(builder_class, records, codec)
    header = check_produced(batch, produce_version=7, transactional=True)
    assert header.codec in (0, codec), "kafka-python leaves records as they are when compressing gains nothing"
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 3)
    assert decode_batch(batch) == records


@pytest.mark.parametrize("builder_class", BUILDERS)
@pytest.mark.parametrize("codec", CODEC_IDS)
def test_compressed_batches_of_other_clients_decode(builder_class: type, codec: int) -> None:
    records = [Record(n, n, b"key", b"value %d" % (n % 7), (("h", b"x"),)) for n in range(5000)]
    batch = foreign(builder_class, records, codec)
    assert check_produced(batch, produce_version=7, transactional=True).codec == codec
    assert decode_batch(batch) == records


@pytest.mark.parametrize("builder_class", BUILDERS)
@settings(max_examples=40)
@given(records=record_lists(max_size=8))
def test_uncompressed_batches_are_the_same_bytes(builder_class: type, records: list[Record]) -> None:
    theirs, mine = bytearray(foreign(builder_class, records, 0)), bytearray(ours(records, 0))
    stamp(theirs, 0, 0)
    stamp(mine, 0, 0)
    assert mine == theirs


@pytest.mark.parametrize("reader_class", READERS)
@settings(max_examples=40)
@given(records=record_lists(max_size=8), codec=st.sampled_from(CODEC_IDS))
def test_other_clients_decode_our_batches(reader_class: type, records: list[Record], codec: int) -> None:
    read = reader_class(bytearray(ours(records, codec)))
    assert read.validate_crc()
    assert read.is_transactional
    assert read.producer_id == 9
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in read] == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in records
    ]
