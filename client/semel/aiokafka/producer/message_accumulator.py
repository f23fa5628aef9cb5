"""aiokafka's `producer.message_accumulator`: the batch that `create_batch` returns."""

from semel._produce.record_batch import RecordBatch as BatchBuilder

__all__ = ["BatchBuilder"]
