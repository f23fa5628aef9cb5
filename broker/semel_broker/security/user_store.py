"""The users of the cluster: kept in its store, followed by every broker (KIP-554).

A user is a name with a credential for each mechanism of SCRAM; PLAIN is checked against the same ones. A change is
answered when this broker has it. On the other brokers it is in force a moment later. Open connections stay as they are.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    keys_of,
    salted_password,
)

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.records import USERS_WRITTEN, ScramCredential, user_key, user_of
from semel_broker.cluster.store import Change, Delete, Expect, Put, Store
from semel_broker.cluster.writes import SERIAL_CHANGES_MAX, settle, write, write_serially
from semel_broker.security.unknown_users import Credentials, UnknownUsers
from semel_broker.world import Logger, World

TRIES = 3
USERS_MAX = 100_000
"""Credentials in a cluster."""
NAME_BYTES_MAX = 1_000
SALT_BYTES_MAX = 1_000


class UserStore:
    """One per broker. `secret`: of the cluster, of which the salts of unknown users are made."""

    def __init__(self, store: Store, feed: Feed, secret: bytes, log: Logger) -> None:
        self._store, self._feed, self._log = store, feed, log
        self._users: dict[str, Credentials] = {}
        self._unknown = UnknownUsers(secret)
        self._writing = Lock()  # of this broker's changes; those of others make them fail, to be tried again
        feed.listeners.append(self._follow)
        self._take(feed.image.users)

    @property
    def names(self) -> list[str]:
        """All users, sorted."""
        return sorted(self._users)

    def credentials(self, name: str) -> Credentials:
        """The credentials of a user; empty: there is no such user."""
        return self._users.get(name, {})

    # --- logins ---

    def find(self, name: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """The credential of a user, and whether there is one. Without it: one that no password fits.

        An unknown user always gets the same one, on every broker: see `UnknownUsers`.
        """
        found = self.credentials(name).get(mechanism)
        return (self._unknown.credential(name, mechanism), False) if found is None else (found, True)

    def find_any(self, name: str) -> tuple[ScramMechanism, ScramCredential, bool]:
        """As `find`, with the first mechanism for which the user has a credential."""
        credentials = self.credentials(name)
        if not credentials:
            return *self._unknown.any_credential(name), False
        mechanism = min(credentials)
        return mechanism, credentials[mechanism], True

    # --- changes ---

    async def settle(self) -> None:
        """Wait until all changes so far are in force here, and let those fail that the store would apply late: a
        refusal must stay true. Raises REQUEST_TIMED_OUT."""
        async with self._writing:
            await settle(self._store, self._feed, USERS_WRITTEN)

    def check(self, name: str, mechanism: ScramMechanism, iterations: int, salt: bytes, salted: bytes) -> None:
        """Raise UNACCEPTABLE_CREDENTIAL, and POLICY_VIOLATION for a user too many."""
        self.check_name(name)
        if iterations < ITERATIONS_MIN:
            raise _unacceptable(f"too few iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed")
        if iterations > ITERATIONS_MAX:
            raise _unacceptable(f"too many iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed")
        if not 0 < len(salt) <= SALT_BYTES_MAX:
            raise _unacceptable(f"a salt has 1 to {SALT_BYTES_MAX} bytes")
        if len(salted) != mechanism.digest_bytes:
            raise _unacceptable(f"the salted password of {mechanism.sasl_name} has {mechanism.digest_bytes} bytes")
        if name not in self._users and len(self._users) >= USERS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {USERS_MAX} users already")

    def check_name(self, name: str) -> None:
        """Raise UNACCEPTABLE_CREDENTIAL."""
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise _unacceptable(f"the name of a user has 1 to {NAME_BYTES_MAX} bytes")
        if "\0" in name:
            raise _unacceptable("the name of a user has no NUL")

    async def alter(self, changes: Sequence[Change]) -> None:
        """Write changes made by `put` and `delete`, those of one user together. Raises REQUEST_TIMED_OUT."""
        for portion in _portions(changes):
            async with self._writing:
                await write_serially(self._store, self._feed, USERS_WRITTEN, portion)

    async def make_first(self, name: str, password: str, world: World) -> None:
        """Make a user if there are none, as at the first start of a cluster. Raises REQUEST_TIMED_OUT.

        Of brokers that start at once, one makes it.
        """
        self.check_name(name)
        for _ in range(TRIES):
            if self._users:
                self._log.info("bootstrap_user_not_made", user=name, reason="there are users already")
                return
            puts = puts_of_password(name, password, world)
            first = [Expect(USERS_WRITTEN), *(Expect(each.key) for each in puts)]
            if await write(self._store, self._feed, first, [*puts, Put(USERS_WRITTEN, b"")]):
                self._log.info("bootstrap_user_made", user=name)
                return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the store did not answer: try again")

    def _follow(self, delta: ImageDelta) -> None:
        if delta.users:
            self._take(delta.users)
            self._log.info("users_changed", changed=len(delta.users), users=len(self._users))

    def _take(self, keys: Iterable[str]) -> None:
        """Make of the users what the image says of these keys."""
        for key in keys:
            name, mechanism = user_of(key)
            credential = self._feed.image.users.get(key)
            credentials = self._users.setdefault(name, {})
            before = dict(credentials)
            if credential is None:
                credentials.pop(ScramMechanism.of(mechanism), None)
            else:
                credentials[ScramMechanism.of(mechanism)] = credential
            self._unknown.follow(before, credentials)
            if not credentials:
                del self._users[name]


def put(name: str, mechanism: ScramMechanism, iterations: int, salt: bytes, salted: bytes) -> Put:
    """The change that gives a user a credential."""
    stored_key, server_key = keys_of(mechanism, salted)
    credential = ScramCredential(salt, iterations, stored_key, server_key)
    return Put(user_key(name, mechanism.sasl_name), msgspec.json.encode(credential))


def delete(name: str, mechanism: ScramMechanism) -> Delete:
    """The change that takes a credential from a user."""
    return Delete(user_key(name, mechanism.sasl_name))


def _portions(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """The changes in as few transactions as keep those of each user together, in their order."""
    portion: list[Change] = []
    for _, of_user in groupby(changes, lambda change: user_of(change.key)[0]):
        some = list(of_user)
        if len(portion) + len(some) > SERIAL_CHANGES_MAX:
            yield portion
            portion = []
        portion += some
    if portion:
        yield portion


def puts_of_password(name: str, password: str, world: World) -> list[Put]:
    """The changes that give a user this password for every mechanism. Blocks for some milliseconds."""
    puts: list[Put] = []
    for mechanism in ScramMechanism:
        salt = world.rng.randbytes(SALT_BYTES)
        salted = salted_password(mechanism, password.encode(), salt, ITERATIONS_MIN)
        puts.append(put(name, mechanism, ITERATIONS_MIN, salt, salted))
    return puts


def _unacceptable(what: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, what)
