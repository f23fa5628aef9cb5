"""semel's client with SASL against semel's broker: every mechanism, refusals, and sessions that end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.security.sasl import issuer
from broker.security.sasl.issuer import AUDIENCE, ISSUER, jwks, public, token
from joserfc.jwk import RSAKey
from semel import Admin, Consumer, Producer
from semel.errors import SaslAuthenticationFailed
from semel_broker.security.user_store import put
from semel_broker.testing.authority import Authority
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.scram import ScramMechanism, salted_password
from support.tiers import tiered

pytestmark = pytest.mark.real_time

PASSWORD = "hush, kettle"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class SignedTokens:
    """Tokens of `issuer`, valid for `life_s`. `claims` over those of a valid one."""

    def __init__(self, life_s: float = 60, key: Any = None, **claims: Any) -> None:
        self.calls, self.life_s, self.key, self.claims = 0, life_s, key, claims

    async def token(self) -> str:
        self.calls += 1
        now = time.time()
        times = {"exp": now + self.life_s, "nbf": now - 1, "iat": now - 1}
        return token(self.key, **{**times, **self.claims})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EphemeralBroker]:
    """All mechanisms without TLS, the user alice, sessions of 1.4 s."""
    keys = tmp_path_factory.mktemp("issuer") / "jwks.json"
    keys.write_bytes(jwks(public(issuer.rsa_key())))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.plain.without.tls.enable": "true",
        "connections.max.reauth.ms": "1400",
        "connection.failed.authentication.delay.ms": "10",
        "sasl.oauthbearer.jwks.file": keys,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    with EphemeralBroker(settings) as running:
        changes = []
        for mechanism in ScramMechanism:
            salted = salted_password(mechanism, PASSWORD.encode(), b"0123456789abcdef", 4096)
            changes.append(put("alice", mechanism, 4096, b"0123456789abcdef", salted))
        running.call(lambda node: node.broker.users.alter(changes))
        yield running


def settings(broker: EphemeralBroker, mechanism: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": SignedTokens()} | more
    return given | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD} | more


@pytest.mark.parametrize(
    "mechanism", tiered(MECHANISMS, lambda mechanism: mechanism in {"SCRAM-SHA-256", "OAUTHBEARER"})
)
async def test_records_go_both_ways_while_sessions_end(broker: EphemeralBroker, mechanism: str) -> None:
    """Sessions of 1.4 s, records for 2.8 s: each connection renews its session twice."""
    given, topic, count = settings(broker, mechanism), f"t-{mechanism}", 140
    values: list[bytes | None] = []

    async def read(consumer: Consumer) -> None:
        while len(values) < count:
            values.append((await consumer.getone()).value)

    consumer = Consumer(topic, **given, auto_offset_reset="earliest", group_id=f"g-{mechanism}")
    async with Producer(**given) as producer, consumer:
        reading = asyncio.create_task(read(consumer))
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number)
            await asyncio.sleep(0.02)  # sessions end meanwhile
        await asyncio.wait_for(reading, 20)
    assert values == [b"%d" % number for number in range(count)]
    assert not [line for line in broker.log if "session_expired" in line]


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_wrong_password_is_an_error_within_a_second(broker: EphemeralBroker, mechanism: str) -> None:
    began = time.monotonic()
    for wrong in ({"sasl_plain_password": "wrong"}, {"sasl_plain_username": "nobody"}):
        with pytest.raises(SaslAuthenticationFailed, match=f"with {mechanism}"):
            await Admin(**settings(broker, mechanism, **wrong)).start()
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        (SignedTokens(-10), "expired"),
        (SignedTokens(aud="other"), "wrong_audience"),
        (SignedTokens(iss="other"), "wrong_issuer"),
        (SignedTokens(key=RSAKey.generate_key(2048)), "wrong_signature"),
        (SignedTokens(header={"kid": "k2"}), "unknown_key"),
        (SignedTokens(sub="ANONYMOUS"), "reserved_principal"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_a_wrong_token_is_refused_and_the_log_says_why(
    broker: EphemeralBroker, provider: SignedTokens, reason: str
) -> None:
    with pytest.raises(SaslAuthenticationFailed, match="Check that the token is for this broker") as caught:
        await Admin(**settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider)).start()
    neutral = "(Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER)"
    assert neutral in str(caught.value), "the client does not learn why"
    said = [line for line in broker.log if "sasl_authentication_failed" in line][-1]
    assert reason in said
    assert await provider.token() not in "".join(broker.log)


async def test_a_session_ends_with_its_token_and_is_renewed_with_the_next_one(broker: EphemeralBroker) -> None:
    provider = SignedTokens(life_s=1.25)
    given = settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider)
    async with Producer(**given) as producer:
        for _ in range(30):
            await producer.send_and_wait("t", b"x")
            await asyncio.sleep(0.1)  # tokens expire meanwhile
    assert provider.calls >= 4, "two connections, renewed at least once each"


async def test_a_client_without_sasl_gets_the_missing_setting_in_the_error(broker: EphemeralBroker) -> None:
    with pytest.raises(Exception, match="if this listener requires SASL, set security_protocol"):
        await Admin(bootstrap_servers=broker.bootstrap_servers, bootstrap_timeout_ms=300).start()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_client_authenticates_over_tls(mechanism: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    given = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": mechanism,
        "ssl.keystore.location": authority.issue("server", "127.0.0.1"),
    }
    with EphemeralBroker(given) as secured:
        salted = salted_password(ScramMechanism.SCRAM_SHA_512, PASSWORD.encode(), b"0123456789abcdef", 4096)
        credential = put("alice", ScramMechanism.SCRAM_SHA_512, 4096, b"0123456789abcdef", salted)
        secured.call(lambda node: node.broker.users.alter([credential]))
        tls = {"security_protocol": "SASL_SSL", "ssl_cafile": str(authority.ca_file)}
        async with Producer(**settings(secured, mechanism, **tls)) as producer:
            await producer.send_and_wait("t", b"x")
        with pytest.raises(SaslAuthenticationFailed):
            await Admin(**settings(secured, mechanism, **tls, sasl_plain_password="wrong")).start()
