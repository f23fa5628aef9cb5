"""`semel pipeline`: streaming queries of Spark that a file defines, run from the command line."""
