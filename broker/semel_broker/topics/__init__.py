"""The topics of the cluster: which there are, their settings, and what clients are told of them."""
