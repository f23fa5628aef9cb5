"""EDGE: the settings of the demo's clients: addresses, and what brokers with users and TLS need.

The variable SEMEL_CLIENT_FILE names the file with user, password and CA: so neither arguments nor variables of
processes have a password.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

VARIABLE = "SEMEL_CLIENT_FILE"
NAMES = {
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
"""librdkafka's name -> semel's."""
HOST_CHECK = "ssl.endpoint.identification.algorithm"


def of_semel(bootstrap: str) -> dict[str, Any]:
    """The arguments of semel's clients."""
    given = _properties()
    own: dict[str, Any] = {NAMES[name]: value for name, value in given.items() if name in NAMES}
    if HOST_CHECK in given:
        own["ssl_check_hostname"] = bool(given[HOST_CHECK])
    return {"bootstrap_servers": bootstrap, **own}


def of_librdkafka(bootstrap: str) -> dict[str, Any]:
    """The settings of confluent-kafka's clients."""
    given = _properties()
    own = {name: value for name, value in given.items() if name in NAMES}
    if HOST_CHECK in given:
        own[HOST_CHECK] = given[HOST_CHECK] or "none"
    return {"bootstrap.servers": bootstrap, **own}


def _properties() -> dict[str, str]:
    file = os.environ.get(VARIABLE)
    lines = Path(file).read_text().splitlines() if file else []
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}
