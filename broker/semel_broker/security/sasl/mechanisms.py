"""The mechanisms of a listener: what makes an exchange of each, by its name in SaslHandshake."""

from __future__ import annotations

from collections.abc import Callable

from semel_protocol.scram import ScramMechanism

from semel_broker.config.sasl_settings import OAUTHBEARER, PLAIN, SaslSettings
from semel_broker.security.sasl.mechanism import Mechanism, Mechanisms
from semel_broker.security.sasl.plain import KEY_BYTES, PlainExchange, VerifiedPasswords
from semel_broker.security.sasl.scram import ScramExchange
from semel_broker.security.user_store import UserStore
from semel_broker.world import World

NONCE_BYTES = 24


def mechanisms_of(
    settings: SaslSettings, users: UserStore, world: World, oauth: Callable[[], Mechanism] | None = None
) -> Mechanisms:
    """The mechanisms that the listener has enabled, in its order. `oauth`: makes an exchange of OAUTHBEARER."""

    def scram(mechanism: ScramMechanism) -> Callable[[], Mechanism]:
        return lambda: ScramExchange(mechanism, users.find, world.rng.randbytes(NONCE_BYTES).hex())

    table: dict[str, Callable[[], Mechanism]] = {each.sasl_name: scram(each) for each in ScramMechanism}
    if PLAIN in settings.mechanisms:
        verified = VerifiedPasswords(world.rng.randbytes(KEY_BYTES))
        table[PLAIN] = lambda: PlainExchange(users.find_any, world.stretch, verified)
    if oauth is not None:
        table[OAUTHBEARER] = oauth
    return {name: table[name] for name in settings.mechanisms}
