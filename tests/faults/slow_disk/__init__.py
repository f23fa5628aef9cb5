"""The waits of a bystander while brokers work on slow disks: `python -m faults.slow_disk`, a table."""
