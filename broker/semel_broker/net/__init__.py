"""The network side of the broker: sockets, frames, connections, and the way from a request frame to its answer."""
