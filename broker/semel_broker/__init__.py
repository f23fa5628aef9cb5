"""The server: connections, partitions, consumer groups, topics, settings. Imports storage and protocol."""
