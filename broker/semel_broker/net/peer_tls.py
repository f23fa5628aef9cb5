"""EDGE: TLS by OpenSSL for the connections that a broker opens to other brokers: the client's side of mTLS."""

from __future__ import annotations

from ssl import SSLCertVerificationError, SSLError
from typing import Any, Final

from semel_broker.config.tls_settings import TlsSettings
from semel_broker.net.tls_contexts import FileContext, own_certificate, peer_context
from semel_broker.world import Logger, TlsFailure

_EXPIRED: Final = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_WRONG_NAME: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_REFUSED: Final = "that broker refuses this broker's certificate"
ALERTS: Final = {
    "UNKNOWN_CA": (
        "certificate_not_trusted",
        "sign ssl.keystore.location with a CA in the ssl.truststore.location of that broker",
    ),
    "CERTIFICATE_EXPIRED": ("certificate_expired", "put a certificate that is valid now into ssl.keystore.location"),
    "CERTIFICATE_REQUIRED": (
        "certificate_refused",
        "give ssl.keystore.location a certificate that is valid for clients",
    ),
    "UNSUPPORTED_CERTIFICATE": (
        "certificate_refused",
        "give brokers certificates for both uses, serverAuth and clientAuth",
    ),
    "BAD_CERTIFICATE": ("certificate_refused", "see the log of that broker for its reason"),
    "CERTIFICATE_UNKNOWN": ("certificate_refused", "see the log of that broker for its reason"),
    "HANDSHAKE_FAILURE": ("certificate_refused", "see the log of that broker for its reason"),
}
"""The meaning of the other broker's alerts, by the end of OpenSSL's names."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""OpenSSL's reasons if the first bytes of the other side are not TLS."""


class ClientTls:
    """See `PeerTls`."""

    def __init__(self, settings: TlsSettings, log: Logger) -> None:
        """Raise ConfigError, which names the setting and its file."""
        self._settings = settings
        self._files = FileContext(settings, log, peer_context, "client")

    def own_certificate(self) -> bytes:
        return own_certificate(self._settings)

    @property
    def ends_at_s(self) -> int | None:
        return self._files.ends_at_s

    def reload_if_changed(self) -> None:
        self._files.reload_if_changed()

    def arguments(self, host: str) -> dict[str, Any]:
        return {"ssl": self._files.context, "server_hostname": host}

    def certificate(self, transport: Any) -> bytes | None:
        made = transport.get_extra_info("ssl_object")
        found: bytes | None = None if made is None else made.getpeercert(binary_form=True)
        return found

    def explain(self, error: Exception | None) -> TlsFailure | None:
        match error:
            case SSLCertVerificationError():
                return _not_verified(error)
            case SSLError():
                reason = error.reason or type(error).__name__
                for ending, (name, do) in ALERTS.items():
                    if reason.endswith(ending):
                        return TlsFailure(name, f"{_REFUSED} ({reason})", do)
                if any(part in reason for part in _NO_TLS):
                    return TlsFailure("not_tls", reason, "give all brokers the same protocol between brokers")
                return TlsFailure("handshake_failed", reason, "see the log of that broker for its reason")
        return None


def _not_verified(error: SSLCertVerificationError) -> TlsFailure:
    text = error.verify_message
    if error.verify_code in _WRONG_NAME:
        return TlsFailure(
            "wrong_host",
            text,
            "issue that broker's certificate for the address that it advertises, or set "
            "ssl.endpoint.identification.algorithm to nothing",
        )
    if error.verify_code in _EXPIRED:
        return TlsFailure("peer_certificate_expired", text, "give that broker a certificate that is valid now")
    return TlsFailure(
        "peer_certificate_not_trusted", text, "add the CA of that broker's certificate to ssl.truststore.location"
    )
