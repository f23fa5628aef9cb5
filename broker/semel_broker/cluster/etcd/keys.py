"""Keys of the seam as keys of etcd: under a namespace, so that several clusters can share one etcd *(pure)*."""

from __future__ import annotations


class Keys:
    """`topics/flights` is `<namespace>/topics/flights` in etcd, in UTF-8, whose byte order is that of the strings."""

    def __init__(self, namespace: str) -> None:
        assert namespace.strip("/"), "without a namespace, a cluster would own all of etcd"
        self._root = f"{namespace.rstrip('/')}/".encode()

    def pack(self, key: str) -> bytes:
        """As it is called in etcd."""
        return self._root + key.encode()

    def unpack(self, key: bytes) -> str:
        """As it is called here."""
        assert key.startswith(self._root), (key, self._root)
        return key[len(self._root) :].decode()

    def range(self, prefix: str) -> tuple[bytes, bytes]:
        """All keys that start with `prefix`: from the first key up to, not including, the second."""
        start = self.pack(prefix)
        return start, start[:-1] + bytes([start[-1] + 1])  # no byte of UTF-8 is 255
