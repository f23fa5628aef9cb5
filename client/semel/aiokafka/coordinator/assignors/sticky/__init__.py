"""aiokafka's `coordinator.assignors.sticky`."""
