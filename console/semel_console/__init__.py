"""`semel console`: a web page that shows a cluster, and its server. It knows the cluster by its wire alone."""
