"""EDGE: the security of a broker in a test: its settings, certificates and users, and the settings of clients for it.

A password is made anew for each broker. Certificates lie in a folder that is removed with the object.
"""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, NamedTuple, get_args

from semel_broker.testing.authority import Authority

SecurityName = Literal["plaintext", "tls", "scram", "scram+tls", "plain+tls"]
ClientName = Literal["semel", "aiokafka", "confluent-kafka", "kafka-python"]

USER: Final = "test"
"""The user of a broker with SASL. It may do everything."""
SCRAM: Final = "SCRAM-SHA-512"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class _Form(NamedTuple):
    protocol: str
    mechanism: str = ""


FORMS: Final[dict[str, _Form]] = {
    "plaintext": _Form("PLAINTEXT"),
    "tls": _Form("SSL"),
    "scram": _Form("SASL_PLAINTEXT", SCRAM),
    "scram+tls": _Form("SASL_SSL", SCRAM),
    "plain+tls": _Form("SASL_SSL", "PLAIN"),
}
assert set(FORMS) == set(get_args(SecurityName))


class BrokerSecurity:
    """One per broker. `ssl_cafile`, `ssl_certfile`: paths; "" without TLS. `passwords`: of each user."""

    def __init__(self, name: SecurityName, host: str) -> None:
        """Raise ImportError if TLS needs the package trustme, ValueError for an unknown name."""
        if name not in FORMS:
            raise ValueError(f"security={name!r} is unknown; give one of {', '.join(map(repr, FORMS))}")
        self._form = FORMS[name]
        self._host = host
        self.ssl_cafile = self.ssl_certfile = self._server_file = ""
        self.passwords: dict[str, str] = {}
        if self._form.protocol in ("SSL", "SASL_SSL"):
            self._make_certificates()
        if self._form.mechanism:
            self.passwords[USER] = secrets.token_urlsafe(12)

    def _make_certificates(self) -> None:
        self._folder = TemporaryDirectory(prefix="semel-tls-")
        authority = Authority(Path(self._folder.name))
        self.ssl_cafile, self.ssl_certfile = str(authority.ca_file), str(authority.issue("client"))
        self._server_file = str(authority.issue("server", self._host, "localhost"))

    @property
    def first_user(self) -> tuple[str, str] | None:
        """Name and password of the user that the broker begins with; None without SASL."""
        return (USER, self.passwords[USER]) if self._form.mechanism else None

    @property
    def broker_settings(self) -> dict[str, object]:
        """The settings of the broker, which has one listener with the name PLAINTEXT."""
        settings: dict[str, object] = {}
        if self._form.protocol != "PLAINTEXT":
            settings["listener.security.protocol.map"] = f"PLAINTEXT:{self._form.protocol}"
        if self._server_file:
            settings["ssl.keystore.location"] = self._server_file
            settings["ssl.truststore.location"] = self.ssl_cafile
            settings["ssl.client.auth"] = "requested"
        if self._form.mechanism:
            settings["sasl.enabled.mechanisms"] = self._form.mechanism
            settings["authorizer.class.name"] = AUTHORIZER
            settings["super.users"] = f"User:{USER}"
        return settings

    def client_settings(self, client: ClientName, bootstrap_servers: str, user: str) -> dict[str, Any]:
        """The arguments of the client of a user. Raises ValueError for another client, KeyError for an unknown user."""
        if client not in get_args(ClientName):
            names = ", ".join(map(repr, get_args(ClientName)))
            raise ValueError(f"the settings of {client!r} are not known; give one of {names}")
        if client == "confluent-kafka":
            return {"bootstrap.servers": bootstrap_servers, **self._librdkafka(user)}
        return {"bootstrap_servers": bootstrap_servers, **self._aiokafka(client, user)}

    def _librdkafka(self, user: str) -> dict[str, str]:
        settings: dict[str, str] = {}
        if self._form.protocol != "PLAINTEXT":
            settings["security.protocol"] = self._form.protocol
        if self.ssl_cafile:
            settings["ssl.ca.location"] = self.ssl_cafile
        if self._form.mechanism:
            settings["sasl.mechanism"] = self._form.mechanism
            settings["sasl.username"], settings["sasl.password"] = user, self.passwords[user]
        return settings

    def _aiokafka(self, client: ClientName, user: str) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if self._form.protocol != "PLAINTEXT":
            settings["security_protocol"] = self._form.protocol
        if self.ssl_cafile and client == "aiokafka":
            settings["ssl_context"] = ssl.create_default_context(cafile=self.ssl_cafile)
        elif self.ssl_cafile:
            settings["ssl_cafile"] = self.ssl_cafile
        if self._form.mechanism:
            settings["sasl_mechanism"] = self._form.mechanism
            settings["sasl_plain_username"], settings["sasl_plain_password"] = user, self.passwords[user]
        return settings
