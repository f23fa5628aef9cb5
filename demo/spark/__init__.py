"""The Spark demo: flights are enriched and summed exactly once while driver, workers and brokers are killed."""
