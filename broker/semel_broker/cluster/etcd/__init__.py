"""etcd as the store of a cluster: the JSON gateway over HTTP, watches, leases."""
