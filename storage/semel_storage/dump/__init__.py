"""`semel log dump`: prints the files of a partition."""
