"""The keys of the issuer: read at the start and at intervals, kept while it is unreachable, requested at most once a
minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from broker.harness import EventLog
from broker.security.sasl import issuer
from broker.security.sasl.issuer import AUDIENCE, ISSUER, NOW_MS, jwks, public, token
from joserfc.jwk import RSAKey
from semel_broker.config.sasl_settings import OAuthSettings
from semel_broker.security.sasl.issuer_keys import UNKNOWN_KEY_PAUSE_S, IssuerKeys
from semel_broker.security.sasl.oauth_bearer import TokenRefusedError, UnknownKeyError
from semel_broker.world import JwksError, World
from semel_storage.disk.os_disk import OsDisk
from support.virtual_time import loop_time

SETTINGS = OAuthSettings(
    location="https://issuer.example/jwks",
    ca_file="",
    refresh_ms=3_600_000,
    issuer=ISSUER,
    audiences=(AUDIENCE,),
    sub_claim="sub",
    scope_claim="scope",
    clock_skew_ms=30_000,
)


class Issuer:
    """Answers with `keys`, or fails with `error`, after `delay_s`. `reads` counts."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [public(issuer.rsa_key())]
        self.error = ""
        self.delay_s = 0.0
        self.reads = 0
        self.log = EventLog()
        self.followers: list[IssuerKeys] = []

    async def read(self, location: str, ca_file: str) -> bytes:
        self.reads += 1
        assert location == SETTINGS.location
        await asyncio.sleep(self.delay_s)
        if self.error:
            raise JwksError(self.error)
        return jwks(*self.keys)

    def followed(self) -> IssuerKeys:
        world = World(now_ms=lambda: NOW_MS, monotonic=loop_time, rng=Random(), disk=OsDisk(), log=self.log)
        self.followers.append(IssuerKeys(SETTINGS, self.read, world))
        return self.followers[-1]


@pytest.fixture
async def there() -> AsyncIterator[Issuer]:
    made = Issuer()
    yield made
    for keys in made.followers:
        await keys.close()


@pytest.fixture
async def keys(there: Issuer) -> IssuerKeys:
    """Keys that were read from the issuer once."""
    keys = there.followed()
    await keys.start()
    return keys


async def reason(keys: IssuerKeys, text: str) -> str:
    with pytest.raises(TokenRefusedError) as caught:
        await keys.check(text)
    return caught.value.reason


async def test_keys_are_read_at_the_start_and_again_after_the_interval(there: Issuer, keys: IssuerKeys) -> None:
    assert (await keys.check(token())).user == "alice"
    await asyncio.sleep(3_599)
    assert there.reads == 1
    await asyncio.sleep(2)
    assert there.reads == 2


async def test_keys_that_were_read_stay_in_use_while_the_issuer_is_away(there: Issuer, keys: IssuerKeys) -> None:
    there.error = "away"
    await asyncio.sleep(3 * 3_600 + 1)
    assert there.reads == 4
    assert (await keys.check(token())).user == "alice"
    assert {line["error"] for line in there.log.of("jwks_not_loaded")} == {"away"}


async def test_a_broker_starts_without_its_issuer_and_refuses_all_tokens_until_it_answers(there: Issuer) -> None:
    there.error = "away"
    keys = there.followed()
    await keys.start()
    assert await reason(keys, token()) == "unknown_key"
    there.error = ""
    await asyncio.sleep(11)
    assert (await keys.check(token())).user == "alice"


async def test_a_key_that_is_no_longer_published_is_no_longer_accepted(there: Issuer, keys: IssuerKeys) -> None:
    there.keys = [public(issuer.ec_key(), "k2")]
    await asyncio.sleep(3_601)
    assert await reason(keys, token()) == "unknown_key"
    assert (await keys.check(token(issuer.ec_key(), "ES256", header={"kid": "k2"}))).user == "alice"


async def test_a_new_key_is_found_at_once(there: Issuer, keys: IssuerKeys) -> None:
    new = RSAKey.generate_key(2048)
    there.keys.append(public(new, "k2"))
    assert (await keys.check(token(new, header={"kid": "k2"}))).user == "alice"
    assert there.reads == 2


async def test_unknown_keys_cause_one_request_a_minute_at_most(there: Issuer, keys: IssuerKeys) -> None:
    for number in range(1_000):
        with pytest.raises(UnknownKeyError):
            await keys.check(token(header={"kid": f"made-up-{number % 7}"}))
    assert there.reads == 2
    await asyncio.sleep(UNKNOWN_KEY_PAUSE_S + 1)
    assert await reason(keys, token(header={"kid": "made-up"})) == "unknown_key"
    assert there.reads == 3


async def test_clients_at_the_same_time_wait_for_one_request(there: Issuer, keys: IssuerKeys) -> None:
    there.delay_s = 3
    new = RSAKey.generate_key(2048)
    there.keys.append(public(new, "k2"))
    text = token(new, header={"kid": "k2"})
    found = await asyncio.gather(*(keys.check(text) for _ in range(20)))
    assert {each.user for each in found} == {"alice"}
    assert there.reads == 2


async def test_a_client_that_goes_away_does_not_stop_the_request_of_the_others(there: Issuer, keys: IssuerKeys) -> None:
    there.delay_s = 3
    new = RSAKey.generate_key(2048)
    there.keys.append(public(new, "k2"))
    text = token(new, header={"kid": "k2"})
    first, second = (asyncio.create_task(keys.check(text)) for _ in range(2))
    await asyncio.sleep(1)
    first.cancel()
    assert (await second).user == "alice"


async def test_bad_keys_of_the_issuer_are_in_the_log(there: Issuer) -> None:
    there.keys.append(public(issuer.rsa_key(1024), "weak"))
    keys = there.followed()
    await keys.start()
    (line,) = there.log.of("jwks_loaded")
    assert line["keys"] == ["k1"]
    assert "it has 1024 bits" in line["ignored"][0]
