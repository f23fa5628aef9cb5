"""aiokafka's `coordinator.assignors`."""
