"""EDGE: makes what deploy/docker-compose.secure.yml needs: certificates, passwords, and a file of settings for clients.

A file that exists is kept, except `admin.properties`, which is written anew with the addresses of the brokers. Files
with keys and passwords have mode 0600, the folder has 0700.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from semel_protocol import extras

from tools.cluster.compose import ComposeError
from tools.cluster.interpolation import dotenv

PASSWORDS = "passwords.env"
ADMIN = "admin.properties"
USER = "admin"
VARIABLES = ("ADMIN_PASSWORD", "ETCD_PASSWORD", "ETCD_ROOT_PASSWORD")
BROKERS = ("localhost", "127.0.0.1", "broker-1", "broker-2", "broker-3")
ETCD = ("store.semel.internal", "etcd", "localhost", "127.0.0.1")
"""Hosts in the certificate of etcd. The first one is the name that brokers ask for, wherever etcd runs."""

FIRST_COMMANDS = (
    "cluster",
    "topic create orders",
    "user create alice",
    "acl add --principal User:alice --allow write --topic orders",
)
"""The first commands for a new cluster, without the option that names ADMIN."""


def make(folder: Path) -> dict[str, str]:
    """Make the missing certificates and passwords. Returns the passwords by variable. Raises ComposeError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if not (folder / "ca.pem").exists():
        _make_certificates(folder)
    missing = [name for name in ("server.pem", "etcd.pem") if not (folder / name).exists()]
    if missing:
        raise ComposeError(
            f"{folder} has a ca.pem, and no {' and no '.join(missing)}: the key of that CA is not kept, so remove the "
            "folder's *.pem files, and the next start makes all of them"
        )
    file = folder / PASSWORDS
    if not file.exists():
        write_private(file, "".join(f"{name}={secrets.token_urlsafe(18)}\n" for name in VARIABLES))
    return dotenv(file.read_text())


def write_client_settings(folder: Path, password: str, addresses: Sequence[str], host: str) -> Path:
    """Write the settings of the first user, for `--config-file` and for Kafka's tools. Returns their file.

    `host`: an address in the certificate of the brokers; for another one the client does not compare it.
    """
    lines = [
        f"bootstrap.servers={','.join(addresses)}",
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={(folder / 'ca.pem').absolute()}",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.username={USER}",
        f"sasl.password={password}",
    ]
    if host not in BROKERS:
        lines.append("ssl.endpoint.identification.algorithm=")
    write_private(folder / ADMIN, "".join(f"{line}\n" for line in lines))
    return folder / ADMIN


def write_private(file: Path, text: str) -> None:
    """Replace a file. From its first byte on, only this user may read it."""
    fresh = file.with_name(f".{file.name}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    fresh.replace(file)


def _make_certificates(folder: Path) -> None:
    try:
        from semel_broker.testing.authority import Authority

        authority = Authority(folder)
    except ImportError:
        raise ComposeError(extras.missing("A cluster with certificates", "trustme", "tls-dev")) from None
    authority.issue("server", *BROKERS)
    authority.issue("etcd", *ETCD)
