"""Decides which requests may enter: host names, the token of the first visit, the session's cookie, the origin of
writes.

A request passes four checks. Its Host header names an IP address, localhost or an allowed name: so a foreign name that
resolves to this machine (DNS rebinding) gets nothing. A request for data has the cookie of a session, which only the
token buys. The browser does not say that another site or another port sent it (Sec-Fetch-Site, Origin). A write has
the session's write token in a header, which pages of other origins cannot read, and a body of JSON.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, MutableMapping
from ipaddress import ip_address
from typing import Any

from semel._edge import Edge
from starlette.datastructures import Headers, MutableHeaders

from semel_console.answers import RequestRefusedError

TOKEN_BYTES = 24
HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
"""Without user names, zones of addresses, spaces and second values. Names are as browsers send them: ASCII."""
PORT_MAX = 65_535
WRITE_HEADER = "x-semel-write-token"
OWN_SITE = ("same-origin", "none")
"""Values of Sec-Fetch-Site of requests that this page makes, or that a person types."""
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class ConsoleGuard:
    """The secrets of one run of the console, and the checks. may_write: whether changes are allowed at all."""

    def __init__(self, *, host_names: Iterable[str] = (), may_write: bool = False, edge: Edge | None = None) -> None:
        edge = edge or Edge()
        self.token, self._session, self.write_token = (edge.random_bytes(TOKEN_BYTES).hex() for _ in range(3))
        self.cookie = f"semel_console_{edge.random_bytes(4).hex()}"
        """Its name. Cookies of one host are shared by all ports, so each run has a name of its own."""
        self.may_write = may_write
        self._host_names = [name.lower() for name in host_names]

    def cookie_for(self, token: str) -> str:
        """The Set-Cookie header for a visitor with this token. Raises RequestRefusedError for a wrong one."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise RequestRefusedError(
                401, "The token is wrong, or of an earlier run. Open the address that `semel console` printed"
            )
        return f"{self.cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise RequestRefusedError for a host name that is not allowed."""
        given = headers.get("host", "")
        name = _host_name(given)
        if name is None:
            raise RequestRefusedError(
                421, f"The Host header {given!r} is not a host name, or an address, with or without a port"
            )
        if name not in ("localhost", *self._host_names) and not _is_ip_address(name):
            raise RequestRefusedError(
                421, f"The host name {name!r} is not allowed: start the console with --allow-host {name}"
            )

    def check_read(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> None:
        """Raise RequestRefusedError for a request without a session, or of another origin."""
        if headers.get("sec-fetch-site", "none") not in OWN_SITE:
            raise RequestRefusedError(403, "The request comes from a page of another origin")
        if not hmac.compare_digest(cookies.get(self.cookie, "").encode(), self._session.encode()):
            raise RequestRefusedError(401, "This browser has no session. Open the address that `semel console` printed")

    def check_write(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> None:
        """Raise RequestRefusedError for a write that does not come from the console's own page, or is not allowed."""
        self.check_origin(headers)
        self.check_read(headers, cookies)
        if not self.may_write:
            raise RequestRefusedError(
                403, "This console only shows: start it with `semel console --write` to allow changes"
            )
        if not hmac.compare_digest(headers.get(WRITE_HEADER, "").encode(), self.write_token.encode()):
            raise RequestRefusedError(403, "The request has no valid write token: reload the page")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raise RequestRefusedError for a POST whose origin is not this console, or whose body is not JSON."""
        scheme, _, origin = headers.get("origin", "").partition("://")
        if (
            scheme not in ("http", "https")
            or not origin
            or origin != headers.get("host", "")
            or headers.get("sec-fetch-site", "same-origin") != OWN_SITE[0]
        ):
            raise RequestRefusedError(403, "The request does not come from the console's own page")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RequestRefusedError(415, "The body must be JSON")


class PageHeaders:
    """ASGI: adds the headers that protect the page to each answer."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(PAGE_HEADERS)
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        await self._app(scope, receive, send_with_headers)


def headers_of(headers: Headers) -> dict[str, str]:
    """The headers by name. A header that is given twice counts as both values, so that no check sees only one."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    return host == "localhost" or (_is_ip_address(host) and ip_address(host).is_loopback)


def _host_name(host: str) -> str | None:
    """The name or address of a Host header in lower case; None unless the whole header is one (RFC 9110, 7.2)."""
    found = HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > PORT_MAX:
        return None
    if found["address"] is not None and not _is_ip_address(found["address"]):
        return None
    return str(found["address"] or found["name"]).lower()


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
