"""PURE: Reads the records of `__transaction_state` back into transactions and transaction groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semel_protocol.single_records import read_rows

from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_records import group_key_of, group_of_row
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.records import key_of, metadata_of


class TransactionReplay:
    """Feed it the log in order, then take the transactions. Of each id only the last record counts."""

    def __init__(self) -> None:
        self._latest: dict[bytes | None, bytes | None] = {}

    def take(self, data: bytes) -> int:
        """Take in whole batches; the offset behind them. Raises CorruptBatch."""
        rows = read_rows(data)
        self.feed(rows.keys, rows.values)
        return rows.next_offset

    def feed(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Take in records, in the order of the log."""
        self._latest.update(zip(keys, values, strict=True))

    def transactions(self) -> Iterator[TransactionMetadata]:
        """The present transactions, without kinds of record of later releases.

        Raises ProtocolError for a record that is malformed, ValueError for a state that there is not.
        """
        for key, value in self._latest.items():
            if key is None or value is None:
                continue
            transactional_id = key_of(key)
            if transactional_id is not None:
                yield metadata_of(transactional_id, value)

    def groups(self) -> Iterator[TransactionGroup]:
        """The transaction groups that there are now. Raises as `transactions`."""
        for key, value in self._latest.items():
            if key is None or value is None:
                continue
            name = group_key_of(key)
            if name is not None:
                yield group_of_row(name, value)
