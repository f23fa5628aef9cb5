"""Converts Kafka record batches to Spark's columns and back, whole batches in one pass *(pure)*."""
