"""The flights on Spark: enriched and summed up, exactly once, while driver, workers and brokers are killed."""
