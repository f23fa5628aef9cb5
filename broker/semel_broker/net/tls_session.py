"""EDGE: TLS by OpenSSL: the certificates of a listener, read again when they change, and sessions of connections."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import (
    CERT_NONE,
    CERT_OPTIONAL,
    CERT_REQUIRED,
    OP_NO_RENEGOTIATION,
    PROTOCOL_TLS_SERVER,
    MemoryBIO,
    SSLCertVerificationError,
    SSLContext,
    SSLError,
    SSLSyscallError,
    SSLWantReadError,
    SSLZeroReturnError,
    TLSVersion,
)
from tempfile import NamedTemporaryFile
from typing import Final

from semel_broker.config.settings import ConfigError
from semel_broker.config.tls_settings import TlsSettings
from semel_broker.world import Logger, TlsFailure

VERSIONS: Final = {"TLSv1.2": TLSVersion.TLSv1_2, "TLSv1.3": TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {"none": CERT_NONE, "requested": CERT_OPTIONAL, "required": CERT_REQUIRED}

_PROTOCOL: Final = "let the client use one of ssl.enabled.protocols"
_OWN_CERTIFICATE: Final = "check that the client trusts the CA of ssl.keystore.location and connects to a name in it"
FAILURES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "no_client_certificate",
        "give the client a certificate, or set ssl.client.auth=requested",
    ),
    "UNSUPPORTED_PROTOCOL": ("no_common_protocol", _PROTOCOL),
    "UNKNOWN_PROTOCOL": ("no_common_protocol", _PROTOCOL),
    "VERSION_TOO_LOW": ("no_common_protocol", _PROTOCOL),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("no_common_protocol", _PROTOCOL),
    "NO_SHARED_CIPHER": ("no_common_cipher", "let the client use the cipher suites of OpenSSL's defaults"),
    "NO_SUITABLE_SIGNATURE_ALGORITHM": ("no_common_cipher", "give the listener an ECDSA or RSA certificate"),
    "TLSV1_ALERT_UNKNOWN_CA": (
        "client_does_not_know_ca",
        "give the client the CA that signed ssl.keystore.location (ssl.ca.location, ssl_cafile, ssl.truststore)",
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": (
        "broker_certificate_expired",
        "put a new certificate into ssl.keystore.location; the broker reads it without a restart",
    ),
    "SSLV3_ALERT_BAD_CERTIFICATE": ("client_refused_certificate", _OWN_CERTIFICATE),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": ("client_refused_certificate", _OWN_CERTIFICATE),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": ("client_refused_certificate", _OWN_CERTIFICATE),
}
"""What OpenSSL's errors of a handshake mean, and what to do."""
_EXPIRED: Final = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

Signature = tuple[tuple[int, int, int] | None, ...]


class FileContext:
    """A context that `make` builds from the files of `settings`, now and whenever they have changed.

    `side`: of a connection, for the log, which gets an error if changed files cannot be used.
    """

    def __init__(
        self, settings: TlsSettings, log: Logger, make: Callable[[TlsSettings], SSLContext], side: str
    ) -> None:
        """Raises ConfigError, which names the setting and its file."""
        self._settings, self._log, self._make, self._side = settings, log, make, side
        files = (settings.keystore_location, settings.key_location, settings.truststore_location)
        self._files = [Path(file) for file in files if file]
        self._loaded = self._seen = self._signature()
        self.context = make(settings)

    def reload_if_changed(self) -> None:
        """Read the files again once they have changed and stayed the same since the last call."""
        signature = self._signature()
        is_settled, self._seen = signature == self._seen, signature
        if not is_settled or signature == self._loaded:
            return
        self._loaded = signature
        try:
            self.context = self._make(self._settings)
        except ConfigError as error:
            self._log.error(
                "certificates_not_reloaded",
                error=str(error),
                do="correct the files; until then new connections get the earlier certificate",
            )
        else:
            self._log.info("certificates_reloaded", listener=self._settings.listener, side=self._side)

    def _signature(self) -> Signature:
        return tuple(map(_file_signature, self._files))


class ServerTls:
    """The TLS of a listener, from files in PEM. `log` gets an error if changed files cannot be used."""

    def __init__(self, settings: TlsSettings, log: Logger) -> None:
        """Raises ConfigError, which names the setting and its file."""
        self._files = FileContext(settings, log, _context, "server")

    def session(self) -> ServerSession:
        return ServerSession(self._files.context)

    def reload_if_changed(self) -> None:
        self._files.reload_if_changed()


def _file_signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


class ServerSession:
    """One server-side session. See `TlsSession`."""

    def __init__(self, context: SSLContext) -> None:
        self._incoming, self._outgoing = MemoryBIO(), MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def receive(self, data: memoryview) -> None:
        self._incoming.write(data)

    def handshake(self) -> bool:
        try:
            self._ssl.do_handshake()
        except SSLWantReadError:
            return False
        except SSLError as error:
            raise explained(error) from None
        return True

    def read(self, into: memoryview) -> int:
        try:
            return int(self._ssl.read(len(into), into)) or -1  # with a buffer it returns a count
        except SSLWantReadError:
            return 0
        except (SSLZeroReturnError, SSLSyscallError):
            return -1
        except SSLError as error:
            raise explained(error) from None

    def write(self, data: bytes) -> None:
        written = self._ssl.write(data)
        while written < len(data):
            written += self._ssl.write(memoryview(data)[written:])

    def to_send(self) -> bytes:
        return self._outgoing.read()

    def close(self) -> None:
        try:
            self._ssl.unwrap()
        except SSLError:  # the peer's own farewell has not come yet, or the session has failed
            pass

    def certificate(self) -> bytes | None:
        return self._ssl.getpeercert(binary_form=True)


def explained(error: SSLError) -> TlsFailure:
    """The failure that an error of OpenSSL means."""
    reason = error.reason or type(error).__name__
    if isinstance(error, SSLCertVerificationError):
        text = error.verify_message
        if error.verify_code in _EXPIRED:
            return TlsFailure("client_certificate_expired", text, "give the client a certificate that is valid now")
        return TlsFailure(
            "client_certificate_not_trusted",
            text,
            "give the client a certificate signed by a CA in ssl.truststore.location",
        )
    name, do = FAILURES.get(reason, ("handshake_failed", "see OpenSSL's reason in `error`"))
    return TlsFailure(name, reason, do)


def _context(settings: TlsSettings) -> SSLContext:
    """Raises ConfigError."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    take_versions(context, settings)
    load_certificate(context, settings)
    if settings.client_auth != "none":
        load_cas(context, settings)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    return context


def take_versions(context: SSLContext, settings: TlsSettings) -> None:
    """Only the versions of `ssl.enabled.protocols`, without renegotiation."""
    context.options |= OP_NO_RENEGOTIATION
    enabled = [VERSIONS[version] for version in settings.enabled_protocols]
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)


def load_certificate(context: SSLContext, settings: TlsSettings) -> None:
    """Load the certificate chain and its key. Raises ConfigError."""
    where = f"listener {settings.listener}: ssl.keystore.location = {settings.keystore_location}"
    if not settings.keystore_location:
        where = f"listener {settings.listener}: ssl.keystore.certificate.chain"

    def password() -> str:
        if not settings.key_password:
            raise ConfigError(f"{where}: the private key is encrypted; give ssl.key.password")
        return settings.key_password

    with _certificate_files(settings) as (certificate, key):
        for file, label in ((certificate, "CERTIFICATE"), (key, "PRIVATE KEY")):
            _check_pem(where, file, label)
        try:
            context.load_cert_chain(certificate, key, password)
        except SSLError as error:
            raise ConfigError(f"{where}: {_certificate_problem(error)}") from None


@contextmanager
def _certificate_files(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    """The files of the certificate chain and of the key. OpenSSL reads files only, so a text gets one for a moment."""
    if settings.keystore_location:
        yield settings.keystore_location, settings.key_location or settings.keystore_location
        return
    with NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
        file.write(f"{settings.certificate_chain}\n{settings.key}\n")
        file.flush()
        yield file.name, file.name


def _certificate_problem(error: SSLError) -> str:
    match error.reason:
        case "KEY_VALUES_MISMATCH":
            return "the private key does not belong to the first certificate; put the listener's certificate first"
        case "BAD_DECRYPT" | "BAD_PASSWORD_READ":
            return "the private key cannot be decrypted; correct ssl.key.password"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL" | "CA_MD_TOO_WEAK":
            return "the key or the signature is too weak; use RSA of 2048 bits or more, or ECDSA, with SHA-256"
    return f"the certificate or its key cannot be read: {error.reason or error}"


def load_cas(context: SSLContext, settings: TlsSettings) -> None:
    """Load the CAs of the other side's certificates. Raises ConfigError."""
    where = f"listener {settings.listener}: ssl.truststore.location = {settings.truststore_location}"
    try:
        if settings.truststore_location:
            _check_pem(where, settings.truststore_location, "CERTIFICATE")
            context.load_verify_locations(settings.truststore_location)
        else:
            where = f"listener {settings.listener}: ssl.truststore.certificates"
            context.load_verify_locations(cadata=settings.truststore_certificates)
    except SSLError as error:
        raise ConfigError(f"{where}: the certificates cannot be read: {error.reason or error}") from None


def _check_pem(where: str, path: str, label: str) -> None:
    """Raises ConfigError unless the file can be read and contains a PEM object with this label."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error.strerror}") from None
    if f"{label}-----".encode() not in text:
        raise ConfigError(f"{where}: {path} holds no {label.lower()} in PEM")
