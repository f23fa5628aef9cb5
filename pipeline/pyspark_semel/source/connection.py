"""EDGE: the `BatchReader`s of this process. Spark reuses its Python workers for many tasks; each keeps its connections.

Workers are forked. A child does not use the connections of its parent and opens its own. A lost connection is reopened
by the reader.
"""

from __future__ import annotations

import os
import threading

from semel.batch_reader import BatchReader
from semel.errors import KafkaConnectionError

from pyspark_semel.event_loop import run
from pyspark_semel.options import NO_ANSWER, SparkClientSettings

_readers: dict[tuple[int, tuple[tuple[str, str], ...]], BatchReader] = {}
"""The readers by process id and settings."""
_making = threading.Lock()


def reader_of(settings: SparkClientSettings) -> BatchReader:
    """Return the started reader of this process with these settings. Raises KafkaConnectionError."""
    process_id = os.getpid()
    with _making:
        for known in [known for known in _readers if known[0] != process_id]:
            del _readers[known]
        reader = _readers.get((process_id, settings.key))
        if reader is None:
            reader = run(_started(settings))
            _readers[process_id, settings.key] = reader
        return reader


async def _started(settings: SparkClientSettings) -> BatchReader:
    reader = BatchReader(**settings.keywords())
    try:
        await reader.start()
    except KafkaConnectionError as error:
        error.extend_message(NO_ANSWER)
        raise
    return reader
