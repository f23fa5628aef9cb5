"""The content of the pages: each function asks the cluster and returns plain values."""
