"""The checks of `semel log check` as a Spark job, for data directories that several machines share."""
