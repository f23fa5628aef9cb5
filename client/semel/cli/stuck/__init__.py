"""`semel group stuck` and `semel topic stuck`: explain why a group or a partition does not move."""
