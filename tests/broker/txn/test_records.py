"""Transactions as records of `__transaction_state`: Kafka's bytes, and fields that other brokers omit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.txn.model import records
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FENCES_KEPT, ExpiredIds, FenceReason, FenceRecord, noted, who_fenced
from semel_broker.txn.model.metadata import DEAD, EMPTY, ONGOING, TransactionMetadata, TransactionState
from semel_broker.txn.model.records import key_of, metadata_of, row_of
from semel_broker.txn.model.replay import TransactionReplay
from semel_protocol.errors import ProtocolError
from semel_storage.internal_topics import (
    TRANSACTION_LOG_VALUE,
    TransactionLogKey,
    TransactionLogValue,
    decode_versioned,
    encode_versioned,
)

INT16 = st.integers(-1, 2**15 - 1)
INT64 = st.integers(-1, 2**63 - 1)
IDENTITIES = st.builds(ProducerIdentity, INT64, INT16)
CLIENTS = st.builds(ClientName, st.text(max_size=5), st.text(max_size=5))
FENCES = st.builds(
    FenceRecord, st.sampled_from(FenceReason), INT64, CLIENTS, st.text(max_size=9), IDENTITIES, IDENTITIES
)
OPEN = st.builds(
    TransactionMetadata,
    transactional_id=st.just("t"),
    producer_id=INT64,
    producer_epoch=INT16,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state not in (EMPTY, DEAD)]),
    last_producer_epoch=INT16,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    next_producer_epoch=INT16,
    partitions=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=6).map(dict.fromkeys),
    last_update_ms=INT64,
    start_ms=INT64,
    client_transaction_version=st.integers(0, 2),
    owner=CLIENTS,
    fences=st.lists(FENCES, max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(OPEN)
def test_stored_metadata_is_read_back(txn: TransactionMetadata) -> None:
    key, value = row_of(txn)
    assert value is not None
    assert key_of(key) == "t"
    assert metadata_of("t", value) == txn


@settings(max_examples=60, deadline=None)
@given(OPEN)
def test_the_value_is_the_one_that_the_codec_writes(txn: TransactionMetadata) -> None:
    """The value is assembled from pieces, some of them cached from other records."""
    _, value = row_of(txn)
    assert value is not None
    assert value == encode_versioned(decode_versioned(TransactionLogValue, value), TRANSACTION_LOG_VALUE)


@settings(max_examples=200, deadline=None)
@given(OPEN, st.data())
def test_both_ways_to_read_a_record_report_damage(txn: TransactionMetadata, draw: st.DataObject) -> None:
    """Records without partitions are not decoded field by field. Both paths must give the same result."""
    _, value = row_of(txn)
    assert value is not None
    at = draw.draw(st.integers(0, len(value) - 1))
    cut = draw.draw(st.sampled_from([len(value), len(value), at]))
    data = (value[:at] + draw.draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :])[:cut]
    try:
        expected = records._decoded("t", data)
    except (ProtocolError, ValueError) as error:
        with pytest.raises(type(error)):
            metadata_of("t", data)
    else:
        assert metadata_of("t", data) == expected


@given(st.binary(max_size=12))
def test_a_key_is_read_as_kafka_reads_it(data: bytes) -> None:
    keys = [data, b"\0\0" + data, b"\0\0" + len(data).to_bytes(2, "big") + data]
    for key in keys:
        try:
            expected = decode_versioned(TransactionLogKey, key).transactional_id
        except ProtocolError:
            if key[:2] == b"\0\0":
                with pytest.raises(ProtocolError):
                    key_of(key)
        else:
            assert key_of(key) == expected


def test_the_bytes_are_kafkas() -> None:
    txn = TransactionMetadata(
        transactional_id="t",
        producer_id=1,
        producer_epoch=2,
        timeout_ms=3,
        state=ONGOING,
        partitions={("a", 4): None},
        last_update_ms=5,
        start_ms=6,
    )
    key, value = row_of(txn)
    assert key.hex() == "00000001" + b"t".hex()
    assert value is not None
    # version, producer id, epoch, timeout, status, compact array of one {"a", [4]}, last update, start, no tags
    assert value.hex(" ", -1) == bytes.fromhex(
        "0001 0000000000000001 0002 00000003 01 02 02 61 02 00000004 00 0000000000000005 0000000000000006 00"
    ).hex(" ", -1)


def test_a_record_of_version_0_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000001 0002 00000003 04 00000001 0001 61 00000001 00000004 0000000000000005 0000000000000006"
    )
    txn = metadata_of("t", value)
    assert (txn.producer_id, txn.state.label, list(txn.partitions)) == (1, "CompleteCommit", [("a", 4)])
    assert (txn.last_producer_epoch, txn.next_producer_id, txn.fences) == (-1, -1, ())


def test_replay_keeps_the_last_record_of_each_id_and_no_tombstone() -> None:
    def at(name: str, state: TransactionState, epoch: int = 0) -> tuple[bytes, bytes | None]:
        return row_of(
            TransactionMetadata(
                transactional_id=name, producer_id=1, producer_epoch=epoch, timeout_ms=1, state=state, last_update_ms=1
            )
        )

    replay = TransactionReplay()
    rows = [at("a", EMPTY), at("b", EMPTY), at("a", EMPTY, 4), at("b", DEAD), (b"\0\x09later", b"?")]
    replay.feed([key for key, _ in rows], [value for _, value in rows])
    assert [(txn.transactional_id, txn.producer_epoch) for txn in replay.transactions()] == [("a", 4)]


def test_a_damaged_record_is_not_passed_over() -> None:
    replay = TransactionReplay()
    replay.feed([row_of_key("t")], [b"\0\x01short"])
    with pytest.raises(ProtocolError):
        list(replay.transactions())


def row_of_key(name: str) -> bytes:
    return b"\0\0" + len(name).to_bytes(2, "big") + name.encode()


# --- the ledger ---


def line(old_epoch: int, reason: FenceReason = FenceReason.NEW_INSTANCE) -> FenceRecord:
    old = ProducerIdentity(5, old_epoch)
    return FenceRecord(reason, 1_700_000_000_000, ClientName("c", "h"), "", old, ProducerIdentity(5, old_epoch + 1))


def test_the_ledger_is_bounded() -> None:
    fences: tuple[FenceRecord, ...] = ()
    for epoch in range(FENCES_KEPT + 5):
        fences = noted(fences, line(epoch))
    assert [fence.old.epoch for fence in fences] == list(range(5, FENCES_KEPT + 5))


def test_a_producers_error_names_the_bump_that_fenced_its_epoch() -> None:
    fences = (line(3), line(4, FenceReason.TIMED_OUT), line(7, FenceReason.ADMIN))
    assert "a new producer" in who_fenced(fences, ProducerIdentity(5, 3))
    assert "transaction.timeout.ms" in who_fenced(fences, ProducerIdentity(5, 4))
    assert "an operator" in who_fenced(fences, ProducerIdentity(5, 6)), "6 to 7 was its own bump, 7 was taken"
    assert who_fenced(fences, ProducerIdentity(5, 8)) == ""
    assert who_fenced(fences, ProducerIdentity(6, 3)) == ""


def test_expired_ids_are_remembered_for_a_while() -> None:
    expired = ExpiredIds(kept=2)
    for name in ("a", "b", "c"):
        expired.add(name, (line(1),))
    assert (expired.get("a"), expired.get("c")) == ((), (line(1),))
