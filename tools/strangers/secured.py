"""EDGE: brokers with security for a suite: certificates, listeners, users, an authorizer, and an issuer of tokens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from semel import Admin
from semel.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tools.strangers import issuer
from tools.strangers.ports import free_ports
from tools.strangers.suite import Security

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURITY = "org.apache.kafka.common.security"
PLAINTEXT = "PLAINTEXT"
ITERATIONS = 4096
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class Secured:
    """The security of one broker: its files are in `folder`. Its listeners have the names of their protocols."""

    def __init__(self, security: Security, folder: Path) -> None:
        self._security, self.folder = security, folder
        names = [PLAINTEXT, *security.listeners]
        ports = free_ports(len(names))
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}

    @property
    def address(self) -> str:
        return self._addresses[PLAINTEXT]

    def make_files(self) -> None:
        """Make the certificates, and the keys of the issuer of tokens."""
        command = [sys.executable, "-m", "semel", "cert", "dev", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        for name in ("server", "client"):
            pem = (self.folder / f"{name}.pem").read_text()
            end = pem.index("-----BEGIN CERTIFICATE-----")
            (self.folder / f"{name}.key").write_text(pem[:end])
            (self.folder / f"{name}.crt").write_text(pem[end:])
        if self._security.oauth:
            issuer.make(self.folder)

    def variables(self) -> dict[str, str]:
        """Environment variables for the suite's script: the address of each listener, and the folder of files."""
        addresses = {f"STRANGERS_{name}": address for name, address in self._addresses.items()}
        return {**addresses, "STRANGERS_SECURITY": str(self.folder)}

    def _common(self) -> dict[str, str]:
        listeners = ",".join(f"{name}://{address}" for name, address in self._addresses.items())
        settings = {
            "listeners": listeners,
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "authorizer.class.name": AUTHORIZER,
            "super.users": ";".join(f"User:{name}" for name in self._security.super_users),
            "allow.everyone.if.no.acl.found": str(self._security.is_open).lower(),
        }
        if self._security.oauth:
            settings["sasl.oauthbearer.expected.issuer"] = issuer.ISSUER
            settings["sasl.oauthbearer.expected.audience"] = issuer.AUDIENCE
        return settings

    def for_semel(self) -> dict[str, str]:
        """The settings of a semel broker."""
        settings = {**self._common(), "sasl.plain.without.tls.enable": "true"}
        if self._security.oauth:
            settings["listener.name.sasl_ssl.sasl.enabled.mechanisms"] = (
                settings["sasl.enabled.mechanisms"] + ",OAUTHBEARER"
            )
            settings["sasl.oauthbearer.jwks.file"] = str(self.folder / issuer.KEYS)
        return settings

    def for_kafka(self) -> dict[str, str]:
        """The settings of a broker of Apache Kafka, but for its listener of controllers."""
        settings = {**self._common(), "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
        users = " ".join(f'user_{each.name}="{each.password}"' for each in self._security.users if each.has("PLAIN"))
        plain = (f"{name}:PLAINTEXT" for name in (PLAINTEXT, "CONTROLLER"))
        others = (f"{name}:{name}" for name in self._security.listeners)
        settings["listener.security.protocol.map"] = ",".join([*plain, *others])
        for name in self._security.listeners:
            prefix = f"listener.name.{name.lower()}"
            if not name.startswith("SASL"):
                continue
            settings[f"{prefix}.plain.sasl.jaas.config"] = f"{SECURITY}.plain.PlainLoginModule required {users};"
            for mechanism in MECHANISMS:
                settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                    f"{SECURITY}.scram.ScramLoginModule required;"
                )
        if self._security.oauth:
            prefix = "listener.name.sasl_ssl"
            bearer = f"{SECURITY}.oauthbearer"
            settings[f"{prefix}.sasl.enabled.mechanisms"] = settings["sasl.enabled.mechanisms"] + ",OAUTHBEARER"
            settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{bearer}.OAuthBearerLoginModule required;"
            settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = (
                f"{bearer}.OAuthBearerValidatorCallbackHandler"
            )
            settings["sasl.oauthbearer.jwt.validator.class"] = (
                f"{bearer}.BrokerJwtValidator"  # 4.1.1's default checks no audience
            )
            settings["sasl.oauthbearer.jwks.endpoint.url"] = (self.folder / issuer.KEYS).as_uri()
        return settings

    def java_options(self) -> list[str]:
        """Options of the Java machine of Apache Kafka."""
        keys = (self.folder / issuer.KEYS).as_uri()
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"] if self._security.oauth else []

    async def make_users(self) -> None:
        """Create the users with SCRAM, as User:ANONYMOUS on the PLAINTEXT listener.

        One credential in a request: Apache Kafka (4.1.1) refuses two of the same user.
        """
        async with Admin(bootstrap_servers=self.address) as admin:
            for user in self._security.users:
                for name, mechanism in MECHANISMS.items():
                    if user.has(name):
                        info = ScramCredentialInfo(mechanism, ITERATIONS)
                        await admin.alter_user_scram_credentials(
                            [UserScramCredentialUpsertion(user.name, info, user.password)]
                        )
