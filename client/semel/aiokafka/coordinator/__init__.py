"""aiokafka's `coordinator`."""
