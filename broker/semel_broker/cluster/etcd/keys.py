"""PURE: keys of the store as keys of etcd, under a namespace, so that several clusters can share one etcd."""

from __future__ import annotations


class Keys:
    """Keys in a namespace: `topics/flights` is `<namespace>/topics/flights` in etcd. UTF-8 keeps the order of keys."""

    def __init__(self, namespace: str) -> None:
        assert namespace.strip("/"), "an empty namespace would hold all keys of etcd"
        self._root = f"{namespace.rstrip('/')}/".encode()

    def pack(self, key: str) -> bytes:
        """The key in etcd."""
        return self._root + key.encode()

    def unpack(self, key: bytes) -> str:
        """The key in the store."""
        assert key.startswith(self._root), (key, self._root)
        return key[len(self._root) :].decode()

    def range(self, prefix: str) -> tuple[bytes, bytes]:
        """The range of all keys that start with `prefix`: its first key, and the first key after it."""
        start = self.pack(prefix)
        return start, start[:-1] + bytes([start[-1] + 1])  # no byte of UTF-8 is 255
