"""What the pages show: each function asks the cluster and returns plain values."""
