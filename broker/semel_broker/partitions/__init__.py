"""The partitions on this broker: logs with a leader, followers and a high watermark, and their background work."""
