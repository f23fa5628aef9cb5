"""A suite's brokers with security: their settings, files and users."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from tools.strangers import issuer
from tools.strangers.brokers import brokers
from tools.strangers.secured import Secured
from tools.strangers.suite import Security, parse

TOML = """
title = "x"
language = "Go"
pins = { x = "1" }

[security]
listeners = ["SASL_PLAINTEXT", "SASL_SSL", "SSL"]
super_users = ["ANONYMOUS", "admin"]
oauth = true
users = [{ name = "admin", password = "a" }, { name = "bob", password = "b", mechanisms = ["SCRAM-SHA-256"] }]
"""


def security() -> Security:
    found = parse("x", TOML).security
    assert found is not None
    return found


def test_a_user_without_mechanisms_has_all() -> None:
    admin, bob = security().users
    assert admin.has("PLAIN")
    assert admin.has("SCRAM-SHA-512")
    assert bob.has("SCRAM-SHA-256")
    assert not bob.has("PLAIN")


def test_all_listeners_have_addresses_of_their_own(tmp_path: Path) -> None:
    secured = Secured(security(), tmp_path)
    variables = secured.variables()
    addresses = [variables[f"STRANGERS_{name}"] for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")]
    assert len(set(addresses)) == len(addresses)
    assert secured.address == addresses[0]
    assert secured.for_semel()["listeners"] == secured.for_kafka()["listeners"]


def test_kafka_knows_users_with_plain_from_its_settings(tmp_path: Path) -> None:
    settings = Secured(security(), tmp_path).for_kafka()
    assert 'user_admin="a"' in settings["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert "bob" not in settings["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert settings["super.users"] == "User:ANONYMOUS;User:admin"


def test_certificates_and_keys_of_the_issuer_are_files(tmp_path: Path) -> None:
    secured = Secured(security(), tmp_path)
    secured.make_files()
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    (key,) = json.loads((tmp_path / issuer.KEYS).read_text())["keys"]
    assert "d" not in key, "the private half"
    assert issuer.token(tmp_path, "alice").count(".") == 2


@pytest.mark.real_time
@pytest.mark.thorough
async def test_a_broker_has_the_users_when_it_is_open(tmp_path: Path) -> None:
    served = brokers("semel", 1, tmp_path, {}, tmp_path, security=security())
    try:
        await served.open()
        assert served.variables()["STRANGERS_PLAINTEXT"] == served.address
    finally:
        await served.close()
    assert served.problems() == []
    log = (tmp_path / "broker.log").read_text()
    assert {name for name in ("admin", "bob") if f'"event":"user_altered","user":"{name}"' in log} == {"admin", "bob"}
