"""The store of a cluster in etcd: its JSON gateway over HTTP and TLS, watches and leases."""
