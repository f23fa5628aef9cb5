"""EDGE: TLS by OpenSSL: the sessions of a listener's connections, and what errors of a handshake mean."""

from __future__ import annotations

from ssl import (
    MemoryBIO,
    SSLCertVerificationError,
    SSLContext,
    SSLError,
    SSLSyscallError,
    SSLWantReadError,
    SSLZeroReturnError,
)
from typing import Final

from semel_broker.config.tls_settings import TlsSettings
from semel_broker.net.tls_contexts import FileContext, server_context
from semel_broker.world import Logger, TlsFailure

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
"""The meaning of OpenSSL's errors of a handshake, and the advice."""
_EXPIRED: Final = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

_WEAK: Final = (66, 67, 68)
"""OpenSSL's X509_V_ERR_EE_KEY_TOO_SMALL, X509_V_ERR_CA_KEY_TOO_SMALL and X509_V_ERR_CA_MD_TOO_WEAK."""


class ServerTls:
    """The TLS of a listener, from files in PEM. `log` gets an error if changed files cannot be used."""

    def __init__(self, settings: TlsSettings, log: Logger) -> None:
        """Raise ConfigError, which names the setting and its file."""
        self._files = FileContext(settings, log, server_context, "server")

    def session(self) -> ServerSession:
        return ServerSession(self._files.context)

    @property
    def ends_at_s(self) -> int | None:
        return self._files.ends_at_s

    def reload_if_changed(self) -> None:
        self._files.reload_if_changed()


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
        if error.verify_code in _WEAK:
            return TlsFailure(
                "client_certificate_weak",
                text,
                "give the client a certificate with RSA of 2048 bits or more, or ECDSA, signed with SHA-256",
            )
        return TlsFailure(
            "client_certificate_not_trusted",
            text,
            "give the client a certificate signed by a CA in ssl.truststore.location",
        )
    name, do = FAILURES.get(reason, ("handshake_failed", "see OpenSSL's reason in `error`"))
    return TlsFailure(name, reason, do)
