"""`semel log dump`: the files of a partition, printed."""
