"""aiokafka's `admin.records_to_delete`."""

from semel.admin import RecordsToDelete

__all__ = ["RecordsToDelete"]
