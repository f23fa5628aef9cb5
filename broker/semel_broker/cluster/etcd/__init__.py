"""etcd as the store of a cluster: its JSON gateway over HTTP and TLS, watches and leases."""
