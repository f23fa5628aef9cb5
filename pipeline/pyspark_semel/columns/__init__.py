"""Record batches of Kafka to Arrow's columns and back, whole batches in one pass *(pure)*."""
