"""The partitions on this broker: logs with a leader, followers, a high watermark, and their housekeeping."""
