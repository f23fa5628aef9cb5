"""EDGE: a certificate authority for tests and laptops: makes certificates in PEM files with the package trustme."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

VALID_DAYS = 365


class Authority:
    """A CA with its files in `directory`: `ca.pem`, and one file for each certificate, with chain and key."""

    def __init__(self, directory: Path) -> None:
        """Make a CA, and write `ca.pem`. Raises ImportError if trustme is not installed, OSError."""
        from trustme import CA  # imported here: only TLS needs it

        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._ca = CA(organization_name="semel", organization_unit_name="certificates for development")
        self.ca_file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_file))

    def issue(self, name: str, *hosts: str, days: float = VALID_DAYS) -> Path:
        """Write `<name>.pem`: a certificate with CN=<name> for these host names and addresses, and its key.

        A negative `days`: it has expired. An existing file is replaced at once, as certificate managers do.
        """
        now = datetime.now(UTC)
        certificate = self._ca.issue_cert(
            *(hosts or (f"{name}.invalid",)),
            common_name=name,
            organization_name="semel",
            not_before=now - timedelta(days=max(1.0, 2 - days)),
            not_after=now + timedelta(days=days),
        )
        file = self.directory / f"{name}.pem"
        fresh = self.directory / f".{name}.pem"
        fresh.touch(mode=0o600)
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        fresh.write_bytes(_as_pkcs8(certificate.private_key_pem.bytes()) + chain)
        fresh.replace(file)
        return file


def _as_pkcs8(key: bytes) -> bytes:
    """The key in the form that Java reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
