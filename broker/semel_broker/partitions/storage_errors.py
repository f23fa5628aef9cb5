"""Answers KAFKA_STORAGE_ERROR when the process may open no more files, or a disk that hangs would have to be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.disk import Disk, FilesUsedUp, NotCached


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


@contextmanager
def reading(disk: Disk, *, hangs: bool) -> Iterator[None]:
    """As `answering_used_up`, around reads on the thread of the loop. `hangs`: the disk hangs, and a read that needs it
    would hold the loop: it raises KAFKA_STORAGE_ERROR. What the kernel has in memory is read.
    """
    disk.reads_cached_only = hangs
    try:
        yield
    except FilesUsedUp as error:
        raise used_up(error) from None
    except NotCached as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the disk hangs, and the kernel does not have the bytes of {error} in memory: try again; the broker's log "
            "has disk_hangs with the path",
        ) from None
    finally:
        disk.reads_cached_only = False
