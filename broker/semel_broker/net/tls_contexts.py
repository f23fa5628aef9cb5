"""EDGE: OpenSSL's contexts of the settings `ssl.*`, for listeners and for connections to other brokers.

They are read again when the files change. What a broker shows to other brokers is tried out before it is used.
"""

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
    PROTOCOL_TLS_CLIENT,
    PROTOCOL_TLS_SERVER,
    MemoryBIO,
    PEM_cert_to_DER_cert,
    SSLCertVerificationError,
    SSLContext,
    SSLError,
    SSLWantReadError,
    TLSVersion,
)
from tempfile import NamedTemporaryFile
from typing import Final

from semel_broker.config.certificate import UnreadableCertificateError, ends_at_s
from semel_broker.config.settings import ConfigError
from semel_broker.config.tls_settings import TlsSettings
from semel_broker.world import Logger

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
VERSIONS: Final = {"TLSv1.2": TLSVersion.TLSv1_2, "TLSv1.3": TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {"none": CERT_NONE, "requested": CERT_OPTIONAL, "required": CERT_REQUIRED}
HANDSHAKE_TURNS_MAX: Final = 10
"""A handshake takes three turns of each side."""
NOT_DECRYPTED: Final = "the private key cannot be decrypted: its password is wrong; correct ssl.key.password"

Signature = tuple[tuple[int, int, int] | None, ...]


class FileContext:
    """A context that `make` builds from the files of `settings`, now and whenever they have changed. `ends_at_s`: the
    end of its certificate, in seconds since 1970; None: not known.

    `side`: of a connection, for the log, which gets an error if changed files cannot be used.
    """

    def __init__(
        self, settings: TlsSettings, log: Logger, make: Callable[[TlsSettings], SSLContext], side: str
    ) -> None:
        """Raise ConfigError, which names the setting and its file."""
        self._settings, self._log, self._make, self._side = settings, log, make, side
        files = (settings.keystore_location, settings.key_location, settings.truststore_location)
        self._files = [Path(file) for file in files if file]
        self._loaded = self._seen = self._signature()
        self.context = make(settings)
        self.ends_at_s = _end_of(settings)

    def reload_if_changed(self) -> None:
        """Read the files again once they have changed and stayed the same since the last call."""
        signature = self._signature()
        is_settled, self._seen = signature == self._seen, signature
        if not is_settled or signature == self._loaded:
            return
        self._loaded = signature
        try:
            self.context = self._make(self._settings)
            self.ends_at_s = _end_of(self._settings)
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


def own_certificate(settings: TlsSettings) -> bytes:
    """The first certificate of the chain, in DER. It is read after OpenSSL has loaded the chain."""
    text = settings.certificate_chain
    if settings.keystore_location:
        text = Path(settings.keystore_location).read_text()
    first = text.partition(BEGIN)[2].partition(END)[0]
    return PEM_cert_to_DER_cert(BEGIN + first + END)


def _end_of(settings: TlsSettings) -> int | None:
    """The end of the own certificate, in seconds since 1970. None: its PEM is of a kind that only OpenSSL reads."""
    try:
        return ends_at_s(own_certificate(settings))
    except UnreadableCertificateError:
        return None


def _file_signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def server_context(settings: TlsSettings) -> SSLContext:
    """For a listener. Raises ConfigError."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    _take_versions(context, settings)
    _load_certificate(context, settings)
    if settings.client_auth != "none":
        _load_cas(context, settings)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    if settings.is_between_brokers:
        check_own_certificate(context, client_context(settings), settings)
    return context


def peer_context(settings: TlsSettings) -> SSLContext:
    """For connections to other brokers. Raises ConfigError."""
    context = client_context(settings)
    server_context(settings)  # which checks the certificate in both directions
    return context


def client_context(settings: TlsSettings) -> SSLContext:
    """The client's side, unchecked. Raises ConfigError."""
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(settings.endpoint_identification)
    context.verify_mode = CERT_REQUIRED
    _take_versions(context, settings)
    _load_certificate(context, settings)
    _load_cas(context, settings)
    return context


def check_own_certificate(server: SSLContext, client: SSLContext, settings: TlsSettings) -> None:
    """A handshake of a broker with itself, in memory: other brokers have the same CAs, and would do the same.

    Raises ConfigError for a certificate that is not of a CA in `ssl.truststore.location`, not valid now, or not valid
    for clients and for servers.
    """
    client.check_hostname, checks_host = False, client.check_hostname
    to_server, to_client = MemoryBIO(), MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)]
    client.check_hostname = checks_host
    for _ in range(HANDSHAKE_TURNS_MAX):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except SSLWantReadError:
                pass
            except SSLError as error:
                why = error.verify_message if isinstance(error, SSLCertVerificationError) else error.reason
                raise ConfigError(
                    f"listener {settings.listener}: other brokers would refuse the certificate of "
                    f"ssl.keystore.location: {why}; its CA must be in ssl.truststore.location, and it must be valid "
                    "now, for clients and for servers"
                ) from None


def _take_versions(context: SSLContext, settings: TlsSettings) -> None:
    """Only the versions of `ssl.enabled.protocols`, without renegotiation."""
    context.options |= OP_NO_RENEGOTIATION
    enabled = [VERSIONS[version] for version in settings.enabled_protocols]
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)


def _load_certificate(context: SSLContext, settings: TlsSettings) -> None:
    """Load the certificate chain and its key. Raises ConfigError."""
    where = f"listener {settings.listener}: ssl.keystore.location = {settings.keystore_location}"
    if not settings.keystore_location:
        where = f"listener {settings.listener}: ssl.keystore.certificate.chain"

    is_encrypted = False

    def password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        if not settings.key_password:
            raise ConfigError(f"{where}: the private key is encrypted; give ssl.key.password")
        return settings.key_password

    with _certificate_files(settings) as (certificate, key):
        for file, label in ((certificate, "CERTIFICATE"), (key, "PRIVATE KEY")):
            _check_pem(where, file, label)
        try:
            context.load_cert_chain(certificate, key, password)
        except SSLError as error:
            raise ConfigError(f"{where}: {_certificate_problem(error, is_encrypted=is_encrypted)}") from None


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


def _certificate_problem(error: SSLError, *, is_encrypted: bool) -> str:
    """`is_encrypted`: OpenSSL asked for the key's password. Some versions give no reason if it is wrong ("PEM lib")."""
    match error.reason:
        case "KEY_VALUES_MISMATCH":
            return "the private key does not belong to the first certificate; put the listener's certificate first"
        case "BAD_DECRYPT" | "BAD_PASSWORD_READ":
            return NOT_DECRYPTED
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL" | "CA_MD_TOO_WEAK":
            return "the key or the signature is too weak; use RSA of 2048 bits or more, or ECDSA, with SHA-256"
    if is_encrypted and (error.reason or "PEM_LIB") == "PEM_LIB":
        return NOT_DECRYPTED
    return f"the certificate or its key cannot be read: {error.reason or error}"


def _load_cas(context: SSLContext, settings: TlsSettings) -> None:
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
    """Raise ConfigError unless the file can be read and contains a PEM object with this label."""
    file = where if where.endswith(path) else f"{where}: {path}"
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        what_to_do = "give a file in PEM that this user may read"
        raise ConfigError(f"{file} cannot be read: {error.strerror}; {what_to_do}") from None
    if f"{label}-----".encode() not in text:
        raise ConfigError(f"{file} holds no {label.lower()} in PEM")
