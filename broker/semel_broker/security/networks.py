"""PURE: the networks whose addresses are counted as one client."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import Final

IPV6_NETWORK_BITS: Final = 64
"""One host usually has a network of this size to itself, so addresses are counted by it."""


@lru_cache(maxsize=4_096)
def network_of(host: str) -> str:
    """The network that is counted as one client: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> IPV6_NETWORK_BITS:x}::/{IPV6_NETWORK_BITS}"
