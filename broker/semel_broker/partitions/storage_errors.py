"""Answers KAFKA_STORAGE_ERROR when the process may open no more files; no record is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.disk import FilesUsedUp


def used_up(error: FilesUsedUp) -> KafkaError:
    """The error for one partition; clients retry. The disk has logged it for the operator."""
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the broker may open no more files ({error}): raise its limit (ulimit -n), or close connections to it",
    )


@contextmanager
def answering_used_up() -> Iterator[None]:
    """Raise KAFKA_STORAGE_ERROR instead of FilesUsedUp."""
    try:
        yield
    except FilesUsedUp as error:
        raise used_up(error) from None
