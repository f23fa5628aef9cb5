"""Converts Kafka record batches to Arrow columns and back, whole batches in one pass *(pure)*."""
