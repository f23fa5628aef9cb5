"""TLS of a client: the context from its settings, and the explanation of errors."""

import ssl
from typing import Final

from semel._config.client import ClientConfig
from semel.errors import KafkaConfigurationError

_WRONG_NAME: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_NOT_VALID_NOW: Final = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_NO_CERTIFICATE: Final = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
_UNKNOWN_CLIENT: Final = ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN")
PLAINTEXT_THERE: Final = (
    "does this listener speak TLS? a listener in plaintext needs security_protocol='PLAINTEXT' or 'SASL_PLAINTEXT'"
)
NOT_DECRYPTED: Final = "the key cannot be decrypted, its password is wrong: correct ssl_password"
TLS_THERE: Final = "if this listener speaks TLS, set security_protocol='SSL' or 'SASL_SSL'"


def context_of(config: ClientConfig) -> ssl.SSLContext | None:
    """The context for new connections; None: plaintext. Raises KafkaConfigurationError for files that do not fit."""
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
    except OSError as error:
        raise KafkaConfigurationError(f"ssl_cafile={config.ssl_cafile!r}: {_problem(error, 'CAs')}") from error
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_certfile is None:
        return context

    is_encrypted = False

    def password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        if config.ssl_password is None:
            raise KafkaConfigurationError("the private key of the client is encrypted: give ssl_password")
        return config.ssl_password

    try:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password)
    except OSError as error:
        files = f"ssl_certfile={config.ssl_certfile!r}, ssl_keyfile={config.ssl_keyfile!r}"
        raise KafkaConfigurationError(f"{files}: {_problem(error, 'certificate or the key', is_encrypted)}") from error
    return context


def _problem(error: OSError, what: str, is_encrypted: bool = False) -> str:
    """`is_encrypted`: OpenSSL asked for the key's password. Some versions give no reason if it is wrong ("PEM lib")."""
    if not isinstance(error, ssl.SSLError):
        return f"the file cannot be read: {error.strerror}"
    match error.reason:
        case "KEY_VALUES_MISMATCH":
            return "the key does not belong to the certificate"
        case "BAD_DECRYPT" | "BAD_PASSWORD_READ":
            return NOT_DECRYPTED
    if is_encrypted and (error.reason or "PEM_LIB") == "PEM_LIB":
        return NOT_DECRYPTED
    return f"the {what} cannot be read as PEM: {error.reason or error}"


def hint(error: Exception, host: str) -> str:
    """The meaning of an error of a TLS connection, and the advice."""
    reason = getattr(error, "reason", None) or ""
    match error:
        case ssl.SSLCertVerificationError() if error.verify_code in _WRONG_NAME:
            return f"the certificate is not valid for {host!r}: connect to a name in it, or have {host} put into it"
        case ssl.SSLCertVerificationError() if error.verify_code in _NOT_VALID_NOW:
            return f"the certificate of the broker: {error.verify_message}; renew it, or correct this machine's clock"
        case ssl.SSLCertVerificationError():
            return "the broker's certificate is not trusted: set ssl_cafile to the CA that signed it"
        case ssl.SSLError() if reason in _NO_CERTIFICATE:
            return "the broker requires a client certificate: set ssl_certfile and ssl_keyfile"
        case ssl.SSLError() if reason in _UNKNOWN_CLIENT:
            return "the broker does not trust the CA of ssl_certfile"
        case ssl.SSLError() if "EXPIRED" in reason:
            return "the certificate in ssl_certfile has expired"
        case ssl.SSLError() if "PROTOCOL_VERSION" in reason or reason == "UNSUPPORTED_PROTOCOL":
            return "broker and client have no version of TLS in common"
    return PLAINTEXT_THERE
