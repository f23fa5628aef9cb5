"""The network side of the broker: sockets, frames, connections, and the dispatch of requests."""
