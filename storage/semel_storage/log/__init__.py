"""The log of one partition: append, read, sync, truncate, recover."""
