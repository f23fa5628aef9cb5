"""The topics of the cluster: which exist, their settings, and the brokers that clients see."""
