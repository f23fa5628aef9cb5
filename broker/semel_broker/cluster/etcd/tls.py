"""EDGE: TLS for connections to etcd: loads the certificate files of the settings, and explains errors of TLS.

The files are read once, at the start of a broker.
"""

from __future__ import annotations

from pathlib import Path
from ssl import MemoryBIO, SSLCertVerificationError, SSLContext, SSLEOFError, SSLError, create_default_context
from typing import Final

from semel_broker.config.settings import ConfigError

CA_FILE: Final = "etcd.tls.ca.file"
CERTIFICATE_FILE: Final = "etcd.tls.certificate.file"
KEY_FILE: Final = "etcd.tls.key.file"
SERVER_NAME: Final = "etcd.tls.server.name"

_WRONG_NAME: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_NO_TLS: Final = (
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "WRONG_VERSION_NUMBER",
)
"""OpenSSL's error reasons if the first bytes of the server are not TLS."""


class EtcdTls:
    """The TLS of all connections to one etcd cluster. `server_name`: the name to verify; empty: the endpoint's host."""

    def __init__(self, context: SSLContext, *, server_name: str = "", has_certificate: bool = False) -> None:
        self.context = context
        self.server_name = server_name
        self._has_certificate = has_certificate

    @classmethod
    def load(
        cls, *, ca_file: str = "", certificate_file: str = "", key_file: str = "", server_name: str = ""
    ) -> EtcdTls:
        """Read the files, all in PEM. No `ca_file`: the CAs of the system. No `key_file`: the certificate's file.

        Raises ConfigError, which names the setting and its file.
        """
        if ca_file:
            _check_pem(CA_FILE, ca_file, "CERTIFICATE")
        try:
            context = create_default_context(cafile=ca_file or None)
        except SSLError as error:
            raise ConfigError(f"{CA_FILE} = {ca_file}: the certificates cannot be read: {error}") from None
        try:
            context.wrap_bio(MemoryBIO(), MemoryBIO(), server_hostname=server_name or "localhost")
        except ValueError as error:
            raise ConfigError(
                f"{SERVER_NAME} = {server_name}: this is neither a host name nor an address: {error}"
            ) from None
        context.set_alpn_protocols(["http/1.1"])
        if certificate_file:
            _load_certificate(context, certificate_file, key_file)
        return cls(context, server_name=server_name, has_certificate=bool(certificate_file))

    def explain(self, error: Exception, host: str, *, is_connected: bool) -> str | None:
        """The message for an error of TLS, with the remedy; None for another error.

        `host`: of the endpoint. `is_connected`: this side had completed the handshake. With TLS 1.3 a server may refuse
        the client's certificate after that.
        """
        match error:
            case SSLCertVerificationError() if error.verify_code in _WRONG_NAME:
                return (
                    f"the certificate of etcd is not valid for {self.server_name or host!r}; "
                    f"set {SERVER_NAME} to a name in the certificate"
                )
            case SSLCertVerificationError():
                return (
                    f"the certificate of etcd does not verify ({error.verify_message}); "
                    f"set {CA_FILE} to the CA that signed it"
                )
            case SSLError() if error.reason in _NO_TLS:
                return "the server does not speak TLS; write its URL in etcd.endpoints with http://"
            case SSLError() if "CERTIFICATE" in (error.reason or "") or "UNKNOWN_CA" in (error.reason or ""):
                if self._has_certificate:
                    return (
                        f"etcd refused the client certificate ({error.reason}); "
                        f"set {CERTIFICATE_FILE} to one that a CA in etcd's --trusted-ca-file has signed"
                    )
                return f"etcd requires a client certificate; set {CERTIFICATE_FILE} and {KEY_FILE}"
            case ConnectionRefusedError():
                return None
            case SSLEOFError() | ConnectionError() if not is_connected:
                advice = "if it does not speak TLS, write its URL in etcd.endpoints with http://"
                if not self._has_certificate:
                    advice += f"; if it requires a client certificate, set {CERTIFICATE_FILE} and {KEY_FILE}"
                return f"the server closed the connection during the TLS handshake; {advice}"
            case SSLEOFError() | ConnectionError() if not self._has_certificate:
                return f"{error}; if etcd requires a client certificate, set {CERTIFICATE_FILE} and {KEY_FILE}"
        return None


def _load_certificate(context: SSLContext, certificate_file: str, key_file: str) -> None:
    """Load the client certificate and its key. Raises ConfigError."""
    _check_pem(CERTIFICATE_FILE, certificate_file, "CERTIFICATE")
    key_setting, key_path = (KEY_FILE, key_file) if key_file else (CERTIFICATE_FILE, certificate_file)
    _check_pem(key_setting, key_path, "PRIVATE KEY")

    def password() -> str:
        raise ConfigError(f"{key_setting} = {key_path}: the private key is encrypted; give one without a password")

    try:
        context.load_cert_chain(certificate_file, key_path, password)
    except SSLError as error:
        raise ConfigError(
            f"{key_setting} = {key_path}: this is not the private key of the certificate in {certificate_file}: {error}"
        ) from None


def _check_pem(setting: str, path: str, label: str) -> None:
    """Raise ConfigError unless the file can be read and contains a PEM object with this label."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting} = {path}: the file cannot be read: {error.strerror}") from None
    if f"{label}-----".encode() not in text:
        raise ConfigError(f"{setting} = {path}: the file holds no {label.lower()} in PEM")
