"""A client with SASL: every mechanism, and the application's error for every failed step."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from client.fake_broker import QUICK, FakeBroker
from client.fake_sasl import PASSWORD, TOKEN, USER, PromptEdge, SaslBroker
from semel import Consumer, Producer
from semel.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateResponse

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class CountedTokens:
    """Gives `token`, or raises it. `calls` counts."""

    def __init__(self, token: Any = TOKEN, extensions: dict[str, str] | None = None) -> None:
        self.given, self.calls, self._extensions = token, 0, extensions or {}

    async def token(self) -> Any:
        self.calls += 1
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def extensions(self) -> dict[str, str]:
        return self._extensions


def settings(broker: FakeBroker, mechanism: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": broker.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "edge": PromptEdge(),
        **QUICK,
    }
    if mechanism == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = CountedTokens()
    else:
        given |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return given | more


async def refusal(broker: FakeBroker, mechanism: str = "PLAIN", **more: Any) -> KafkaError:
    """The error of `start`, which has no secret in it. Refusals come at once, not after bootstrap_timeout_ms."""
    producer = Producer(**settings(broker, mechanism, **more))
    started = asyncio.get_running_loop().time()
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    await producer.stop()
    assert PASSWORD not in str(caught.value)
    assert TOKEN not in str(caught.value)
    if not isinstance(caught.value, KafkaConnectionError):
        assert asyncio.get_running_loop().time() - started < 1
    return caught.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_authenticates_each_connection_before_its_first_request(mechanism: str) -> None:
    async with SaslBroker(*MECHANISMS) as broker:
        async with Producer(**settings(broker, mechanism)) as producer:
            await producer.send_and_wait("t", b"one")
        assert broker.log().values == [b"one"]
        assert broker.logins == 2, "for metadata, and for data"


@pytest.mark.real_time
async def test_keys_are_derived_in_a_thread() -> None:
    async with SaslBroker("SCRAM-SHA-256") as broker:
        async with Producer(**settings(broker, "SCRAM-SHA-256", edge=None)) as producer:
            await producer.send_and_wait("t", b"one")
        assert broker.log().values == [b"one"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_mechanism_that_the_broker_does_not_offer_is_named_with_those_it_offers(mechanism: str) -> None:
    async with SaslBroker("GSSAPI", "OTHER") as broker:
        error = await refusal(broker, mechanism)
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert f"does not offer {mechanism} on this listener; it offers GSSAPI, OTHER" in str(error)
    assert "Set sasl_mechanism" in str(error)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_wrong_password_is_refused_and_the_error_says_what_to_check(mechanism: str) -> None:
    async with SaslBroker(mechanism) as broker:
        broker.password = "another"
        error = await refusal(broker, mechanism)
    assert isinstance(error, SaslAuthenticationFailed)
    assert f"refused the client with {mechanism} (no such luck)" in str(error)
    assert f"Check sasl_plain_username='{USER}' and sasl_plain_password" in str(error)


async def test_a_wrong_token_is_refused_after_its_acknowledgement() -> None:
    async with SaslBroker("OAUTHBEARER") as broker:
        error = await refusal(broker, "OAUTHBEARER", sasl_oauth_token_provider=CountedTokens("another"))
        assert [request.auth_bytes for request in broker.seen(36)][-1] == b"\x01"
    assert isinstance(error, SaslAuthenticationFailed)
    assert "Check that the token is for this broker" in str(error)


async def test_extensions_are_sent_with_the_token() -> None:
    async with SaslBroker("OAUTHBEARER") as broker:
        provider = CountedTokens(extensions={"traceId": "x y"})
        async with Producer(**settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider)):
            pass
        assert broker.seen(36)[0].auth_bytes == b"n,,\x01auth=Bearer t.o.k\x01traceId=x y\x01\x01"


@pytest.mark.parametrize("token", [None, "", b"t.o.k", "a b", "a\x01b", "é"])
async def test_what_is_no_token_is_not_sent(token: Any) -> None:
    async with SaslBroker("OAUTHBEARER") as broker:
        error = await refusal(broker, "OAUTHBEARER", sasl_oauth_token_provider=CountedTokens(token))
        assert not broker.seen(36)
    assert "token() did not return a token" in str(error)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": "\x01b=c"}])
async def test_extensions_that_would_change_the_message_are_not_sent(extensions: dict[str, str]) -> None:
    async with SaslBroker("OAUTHBEARER") as broker:
        provider = CountedTokens(extensions=extensions)
        error = await refusal(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider)
        assert not broker.seen(36)
    assert "extensions() has" in str(error)


async def test_a_provider_that_fails_is_called_again_until_the_timeout() -> None:
    async with SaslBroker("OAUTHBEARER") as broker:
        provider = CountedTokens(RuntimeError("the token is hush"))
        error = await refusal(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider, bootstrap_timeout_ms=100)
    assert isinstance(error, KafkaConnectionError)
    assert "sasl_oauth_token_provider raised RuntimeError" in str(error)
    assert "hush" not in str(error)
    assert provider.calls > 1


async def test_a_provider_that_recovers_is_enough() -> None:
    async with SaslBroker("OAUTHBEARER") as broker:
        provider = CountedTokens(RuntimeError("busy"))
        producer = Producer(**settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider))
        asyncio.get_running_loop().call_later(0.05, setattr, provider, "given", TOKEN)
        await producer.start()
        await producer.stop()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_broker_without_the_credentials_is_not_believed(mechanism: str) -> None:
    def forged(message: bytes) -> bytes:
        return b"v=" + b"A" * 43 + b"=" if message.startswith(b"v=") else message

    async with SaslBroker(mechanism) as broker:
        broker.tampered = forged
        error = await refusal(broker, mechanism)
        assert "Metadata" not in broker.steps
    assert isinstance(error, SaslAuthenticationFailed)
    assert "this peer does not have the credentials" in str(error)


async def test_a_broker_that_skips_its_proof_is_not_believed() -> None:
    async with SaslBroker("SCRAM-SHA-256") as broker:
        broker.tampered = lambda message: b"" if message.startswith(b"v=") else message
        assert "form of RFC 5802" in str(await refusal(broker, "SCRAM-SHA-256"))
        broker.outcome = SaslAuthenticateResponse(auth_bytes=b"")
        assert "form of RFC 5802" in str(await refusal(broker, "SCRAM-SHA-256"))


async def test_a_broker_that_asks_for_too_many_iterations_does_not_keep_the_client_busy() -> None:
    async with SaslBroker("SCRAM-SHA-256") as broker:
        broker.tampered = lambda message: message.replace(b"i=4096", b"i=1000000000")
        assert "asks for '1000000000' iterations" in str(await refusal(broker, "SCRAM-SHA-256"))


async def test_a_listener_without_sasl_is_named() -> None:
    async with SaslBroker() as broker:
        error = await refusal(broker)
        assert isinstance(error, IllegalSaslStateError)
        assert "does not use SASL on this listener" in str(error)
    async with FakeBroker(versions={18: (0, 4), 3: (0, 12)}) as plain:
        error = await refusal(plain)
        assert isinstance(error, UnsupportedVersionError)
        assert "has no SASL on this listener" in str(error)


async def test_an_old_broker_without_sasl_authenticate_is_named() -> None:
    async with SaslBroker("PLAIN") as broker:
        broker.versions[17] = (0, 0)
        assert "has no SASL on this listener" in str(await refusal(broker))


async def test_a_client_without_sasl_learns_that_the_listener_may_require_it() -> None:
    async with FakeBroker() as broker:

        async def hang_up(_: Any) -> None:
            return None

        broker.answers[3] = hang_up
        producer = Producer(bootstrap_servers=broker.address, bootstrap_timeout_ms=50, **QUICK)
        with pytest.raises(KafkaConnectionError, match="if this listener requires SASL, set security_protocol"):
            await producer.start()


async def test_another_error_of_the_broker_is_raised_by_its_name() -> None:
    async with SaslBroker("PLAIN") as broker:
        broker.outcome = SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="odd")
        error = await refusal(broker)
    assert isinstance(error, IllegalSaslStateError)
    assert "refused SaslAuthenticate (odd)" in str(error)


async def test_calls_raise_the_refusal_when_the_password_has_changed() -> None:
    async with SaslBroker("PLAIN") as broker, Producer(**settings(broker, "PLAIN")) as producer:
        broker.password = "another"
        with pytest.raises(SaslAuthenticationFailed):
            await producer.send_and_wait("t", b"one")
        for writer in list(broker.connections):
            writer.transport.abort()
        with pytest.raises(SaslAuthenticationFailed):
            await producer.partitions_for("u")


async def test_a_consumer_raises_the_refusal_and_continues_afterwards() -> None:
    async with SaslBroker("PLAIN") as broker:
        consumer = Consumer("t", **settings(broker, "PLAIN"), auto_offset_reset="earliest")
        await consumer.start()
        broker.password = "another"
        for writer in list(broker.connections):
            writer.transport.abort()
        with pytest.raises(SaslAuthenticationFailed):
            await consumer.getone()
        await consumer.stop()


@pytest.mark.parametrize(("mechanism", "what"), [("PLAIN", "password"), ("OAUTHBEARER", "token")])
async def test_a_secret_without_tls_is_warned_of_once(
    mechanism: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with SaslBroker(mechanism) as broker, Producer(**settings(broker, mechanism)) as producer:
        await producer.send_and_wait("t", b"one")
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [
        f"client 'semel' sends its {what} over a connection without TLS: use security_protocol='SASL_SSL', or SCRAM"
    ]
    assert PASSWORD not in caplog.text
    assert TOKEN not in caplog.text


async def test_scram_without_tls_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with SaslBroker("SCRAM-SHA-512") as broker, Producer(**settings(broker, "SCRAM-SHA-512")):
        pass
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
