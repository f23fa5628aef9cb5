"""EDGE: records as an Arrow stream or a Parquet file, written in the thread of the printer.

The end (the footer of Parquet) is written however the command ends, so that the file can be read. Only SIGKILL and a
second signal leave a Parquet file without a footer.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from semel import ConsumerRecord, TopicPartition
from semel._arrow.columns import RecordColumns
from semel._arrow.decode import SCHEMA
from semel.cli.consume.printer import Printer, writer_to

TableForm = Literal["arrow", "parquet"]
ROW_GROUP_ROWS: Final = 100_000
ROW_GROUP_BYTES: Final = 64 << 20
"""A row group of Parquet is in memory until it is written; it ends with whichever comes first."""
END_S: Final = 1.0


class TableOutput:
    """The output of one command. printer: writes in its thread. commits_at_end: the records are durable, and may be
    committed, once `end` has returned: Parquet cannot be read before.
    """

    rows_max: int | None = 10_000
    """Records to ask for at once: they are one batch of the Arrow stream."""

    def __init__(self, form: TableForm, file: BinaryIO | None) -> None:
        """None: standard output."""
        self.commits_at_end = form == "parquet"
        self._columns = RecordColumns(None, None, None, fixed=True)
        self._table = _TableWriter(form, file)
        self._has_ended = False
        self.printer: Printer[pa.RecordBatch | None] = Printer(
            self._table.write, lambda batch: 1 if batch is None else batch.nbytes
        )

    def take(self, found: Mapping[TopicPartition, list[ConsumerRecord[Any, Any]]]) -> None:
        """Queue records."""
        if rows := [record for records in found.values() for record in records]:
            self.printer.put(self._columns.of_records(rows), len(rows))

    async def end(self) -> None:
        """Write the end after all that waits, once. Raises OSError of the output."""
        if not self._has_ended:
            self._has_ended = True
            self.printer.put(None, 0)
        while not await self.printer.wait(0, END_S):
            continue  # a reader that pauses: the output ends with it


class _TableWriter:
    """Writes batches to a file, or to standard output; a row group of Parquet at a time."""

    def __init__(self, form: TableForm, file: BinaryIO | None) -> None:
        self._is_parquet = form == "parquet"
        self._file = file
        self._sink = _Sink(writer_to(sys.stdout.buffer if file is None else file))
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch | None) -> None:
        """None is the end. Raises OSError."""
        if self._writer is None:
            file = pa.PythonFile(self._sink, "w")
            is_parquet = self._is_parquet
            self._writer = (
                pq.ParquetWriter(file, SCHEMA, compression="zstd") if is_parquet else pa.ipc.new_stream(file, SCHEMA)
            )
        if batch is None:
            self._write_waiting()
            self._writer.close()
            if self._file is not None:
                if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                    os.fsync(self._file.fileno())
                self._file.close()
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if not self._is_parquet or self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write_waiting()

    def _write_waiting(self) -> None:
        batches, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        if self._is_parquet:
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        else:
            self._writer.write_table(table)


class _Sink(io.RawIOBase):
    """What pyarrow writes to. After an error it takes the rest without writing it: pyarrow ends its files itself."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write_bytes, self._has_failed = write, False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._has_failed:
            try:
                self._write_bytes(bytes(data))
            except OSError:
                self._has_failed = True
                raise
        return len(data)


def exists(file: str) -> bool:
    return Path(file).exists()


def opened(file: str, *, overwrite: bool) -> BinaryIO:
    """A new file. Raises FileExistsError unless `overwrite`, and other OSErrors."""
    return Path(file).open("wb" if overwrite else "xb")
