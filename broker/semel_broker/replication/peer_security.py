"""The TLS of the connections to other brokers: verifies the other broker, and explains connections that fail."""

from __future__ import annotations

from typing import Any

from semel_broker.config.peer_listener import BrokerPrincipals
from semel_broker.config.principal_rules import NoPrincipalError
from semel_broker.config.settings import ConfigError
from semel_broker.scheduling.repeated_lines import RepeatedLines
from semel_broker.world import PeerTls, TlsFailure, World

NO_ANSWER = TlsFailure(
    "closed_after_handshake",
    "it closed the connection before its first answer",
    "see the log of that broker: it says why it refuses this broker's certificate",
)


class PeerRefusedError(ConnectionRefusedError):
    """One of two brokers refuses the certificate of the other."""


class PeerSecurity:
    """One per broker with TLS between brokers."""

    def __init__(self, world: World, tls: PeerTls, principals: BrokerPrincipals) -> None:
        """Raise ConfigError if the broker's own certificate is not that of a broker."""
        self.tls, self.principals = tls, principals
        self._log = world.log
        self._lines = RepeatedLines(world.monotonic)
        try:
            principals.principal(tls.own_certificate())
        except NoPrincipalError as error:
            raise ConfigError(
                f"the certificate of the listener for brokers, in ssl.keystore.location: {error}; other brokers would "
                "refuse it: add its principal to broker.principals"
            ) from None

    def check(self, transport: Any) -> None:
        """Raise TlsFailure unless the certificate of the other side is that of a broker."""
        try:
            self.principals.principal(self.tls.certificate(transport))
        except NoPrincipalError as error:
            raise TlsFailure(error.reason, f"its certificate: {error}", error.do) from None

    def failed(self, broker: str, failure: TlsFailure) -> PeerRefusedError:
        """Write the failure, unless it was written a short while ago; return the error for the caller."""
        if times := self._lines.times((broker, failure.reason)):
            self._log.warning(
                "peer_refused", broker=broker, reason=failure.reason, error=str(failure), do=failure.do, times=times
            )
        return PeerRefusedError(f"{broker}: {failure} ({failure.reason}); {failure.do}")
