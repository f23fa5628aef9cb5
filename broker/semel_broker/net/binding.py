"""Binds the sockets of one address: of both families for the wildcard `::`, and at one port for all of them.

asyncio and uvloop open a socket of IPv6 for IPv6 alone. So `::`, which means each address of the machine as in Kafka,
gets a second socket for `0.0.0.0`. Peers of IPv4 then have their own address, not one that is mapped to IPv6: quotas
and ACLs name it.
"""

from __future__ import annotations

import errno
from asyncio import Server
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 (only where an operator asks for each address)
NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
"""The errors of a machine without IPv6, or with IPv6 turned off."""
TRIES: Final = 20
"""Free ports that are tried for a port that is free in both families."""

Create = Callable[[str, int], Awaitable[Server]]
"""Binds a host and a port; port 0 takes a free one."""


def is_wildcard(host: str) -> bool:
    """Whether the host stands for all addresses of this machine; no client can connect to it."""
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return not host


async def bind(create: Create, host: str, port: int) -> tuple[list[Server], int]:
    """The servers of one address, and their port, which is the same for all of them.

    Raises OSError: EADDRNOTAVAIL, too, for a text that cannot be the name of a host.

    A machine without IPv6 gets a server of IPv4 alone for `::`.
    """
    is_dual = ":" in host and is_wildcard(host)
    for left in reversed(range(TRIES)):
        try:
            first = await create(host, port)
        except UnicodeError as error:  # of the encoding of the name, before a resolver is asked
            raise OSError(errno.EADDRNOTAVAIL, f"{host!r} is not the name of a host ({error})") from error
        except OSError as error:
            if not is_dual or error.errno not in NO_SUCH_FAMILY:
                raise
            return await bind(create, ANY_IPV4, port)
        if not first.sockets and is_dual:  # asyncio skips a family that the machine does not have
            first.close()
            return await bind(create, ANY_IPV4, port)
        bound: int = first.sockets[0].getsockname()[1]
        servers = [first]
        try:
            if any(each.getsockname()[1] != bound for each in first.sockets):
                first.close()  # a name with several addresses, each with a free port of its own
                servers = [await create(host, bound)]
            if is_dual:
                servers.append(await create(ANY_IPV4, bound))
        except OSError:
            for server in servers:
                server.close()
            if port or not left:
                raise
        else:
            return servers, bound
    raise AssertionError("unreachable")
