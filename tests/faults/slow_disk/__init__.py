"""How long a bystander waits while brokers work on slow disks: `python -m faults.slow_disk`, a table."""
