"""EDGE: makes the users of an etcd and turns its authentication on: `python -m semel_broker.etcd_users URL`.

For clusters of containers, whose brokers start after it. It may run at each start: an etcd with the user is left as it
is. The variables SEMEL_ETCD_USER, SEMEL_ETCD_PASSWORD and ETCD_ROOT_PASSWORD have the user of the brokers and the
passwords. The user may read and write the keys of the cluster (`--cluster`), and nothing else.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import os
import ssl
import sys
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

VARIABLES = ("SEMEL_ETCD_USER", "SEMEL_ETCD_PASSWORD", "ETCD_ROOT_PASSWORD")
TIMEOUT_S = 10.0
START_S = 30.0
POLL_S = 0.1
ANSWER_BYTES_MAX = 1 << 16
ROOT = "root"
"""etcd needs a user and a role of this name before its authentication can be turned on."""


class EtcdUsersError(Exception):
    """The users cannot be made. The message says why, and what to do."""


class _Refusal(Exception):  # noqa: N818 (an answer, not a bug)
    """etcd has answered with an error."""


class _ErrorAnswer(msgspec.Struct):
    message: str = ""
    error: str = ""


class EtcdUsers:
    """The users of the etcd at `url`. `tls`: how to verify it; `server_name`: the name to verify, if not the host."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, server_name: str | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 2379
        self._tls, self._server_name = tls, server_name

    def ensure(self, user: str, password: str, root_password: str, cluster: str) -> bool:
        """Make users and roles, and turn authentication on. Returns False if the user can log in already.

        Raises EtcdUsersError if etcd has users already and refuses this one, OSError if etcd cannot be reached.
        """
        try:
            self._call("authenticate", name=user, password=password)
            return False
        except _Refusal as refusal:
            if "authentication is not enabled" not in str(refusal):
                raise EtcdUsersError(
                    f"etcd has users already and refuses {user!r} ({refusal}): correct SEMEL_ETCD_PASSWORD"
                ) from None
        try:
            for name, secret in ((ROOT, root_password), (user, password)):
                self._make("user/add", name=name, password=secret)
                self._call("user/changepw", name=name, password=secret)  # an earlier run may have been interrupted
                self._make("role/add", name=name)
                self._call("user/grant", user=name, role=name)
            begin, end = f"{cluster}/", f"{cluster}0"  # "0" follows "/": all keys with this prefix
            keys = {"permType": "READWRITE", "key": _base64(begin), "range_end": _base64(end)}
            self._call("role/grant", name=user, perm=keys)
            self._call("enable")
        except _Refusal as refusal:
            raise EtcdUsersError(f"etcd refused to make its users: {refusal}") from None
        return True

    def _make(self, path: str, **fields: str) -> None:
        try:
            self._call(path, **fields)
        except _Refusal as refusal:
            if "already exists" not in str(refusal):
                raise

    def _call(self, path: str, **fields: object) -> None:
        connection = self._connection()
        try:
            if self._tls is not None:
                name = self._server_name or self._host
                connection.sock = self._tls.wrap_socket(connection.sock, server_hostname=name)
            connection.request("POST", f"/v3/auth/{path}", msgspec.json.encode(fields))
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES_MAX)
        except http.client.HTTPException as error:
            raise OSError(f"it does not speak HTTP: {error}; an etcd with TLS has a URL with https://") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise _Refusal(_message(text) or f"HTTP {answer.status}")

    def _connection(self) -> http.client.HTTPConnection:
        """A connection, which an etcd that has just been started accepts after a while. Raises OSError."""
        deadline = time.monotonic() + START_S
        while True:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
            try:
                connection.connect()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
            else:
                return connection


def _message(answer: bytes) -> str:
    try:
        found = msgspec.json.decode(answer, type=_ErrorAnswer)
    except msgspec.DecodeError:
        return ""
    return found.message or found.error


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def main(arguments: list[str], variables: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m semel_broker.etcd_users", description=__doc__)
    parser.add_argument("url", help="an endpoint of etcd, such as https://etcd:2379")
    parser.add_argument("--cluster", default="semel", help="cluster.name of the brokers (default: semel)")
    parser.add_argument("--ca-file", help="the CA that has signed etcd's certificate (default: those of the system)")
    parser.add_argument("--server-name", help="a name in etcd's certificate (default: the host of the URL)")
    given = parser.parse_args(arguments)
    if missing := [name for name in VARIABLES if not variables.get(name)]:
        parser.error(f"set the variables {', '.join(missing)}")
    user, password, root_password = (variables[name] for name in VARIABLES)
    try:
        tls = None
        if given.url.startswith("https:"):
            tls = ssl.create_default_context(cafile=given.ca_file)
        made = EtcdUsers(given.url, tls, given.server_name).ensure(user, password, root_password, given.cluster)
    except (EtcdUsersError, OSError) as error:
        sys.stderr.write(f"the users of etcd at {given.url} were not made: {error}\n")
        return 1
    sys.stdout.write(f"etcd has the user {user}\n" if made else f"etcd had the user {user} already\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
