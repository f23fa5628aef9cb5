"""The credentials that unknown users are shown at a login, so that no answer tells that they are unknown.

The first answer of SCRAM shows a salt and iterations. Stored credentials may differ in both, so an unknown user gets
the shape of a stored credential: its iterations, and the length of its salt. HMACs of the name choose the shape
(rendezvous hashing): a name keeps its shape while the set of shapes is the same. All brokers have the same secret, so
they show the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from semel_protocol.scram import ITERATIONS_MIN, SALT_BYTES, ScramMechanism, mac

from semel_broker.cluster.records import ScramCredential

SHAPES_MAX: Final = 64
"""The number of shapes to choose from, the most frequent ones: each costs an HMAC at a login."""

Credentials = dict[ScramMechanism, ScramCredential]


class Shape(NamedTuple):
    """The visible part of a stored credential: by the first answer of SCRAM, or by the time that PLAIN takes."""

    mechanism: ScramMechanism
    iterations: int = ITERATIONS_MIN
    salt_bytes: int = SALT_BYTES


class UnknownUsers:
    """One per broker. `secret`: that of the cluster."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._of_scram = {each: _Shapes(Shape(each)) for each in ScramMechanism}
        self._of_plain = _Shapes(Shape(ScramMechanism.SCRAM_SHA_256))

    def follow(self, before: Credentials, now: Credentials) -> None:
        """Count the credentials that a user has `now`, in place of those `before`."""
        for credentials, change in ((now, 1), (before, -1)):
            for mechanism, credential in credentials.items():
                self._of_scram[mechanism].add(_shape(mechanism, credential), change)
            if credentials:
                first = min(credentials)
                self._of_plain.add(_shape(first, credentials[first]), change)

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """A credential for SCRAM that no password fits."""
        return self._made(name, self._chosen(name, self._of_scram[mechanism]))

    def any_credential(self, name: str) -> tuple[ScramMechanism, ScramCredential]:
        """A credential for PLAIN that no password fits. To check it costs as much as to check that of a user."""
        shape = self._chosen(name, self._of_plain)
        return shape.mechanism, self._made(name, shape)

    def _chosen(self, name: str, shapes: _Shapes) -> Shape:
        """The shape with the largest HMAC of the name and the shape."""

        def rank(shape: Shape) -> bytes:
            what = f"shape\0{shape.mechanism.sasl_name}\0{shape.iterations}\0{shape.salt_bytes}\0{name}"
            return mac(ScramMechanism.SCRAM_SHA_256, self._secret, what.encode())

        return max(shapes.candidates(), key=rank)

    def _made(self, name: str, shape: Shape) -> ScramCredential:
        def made(what: str) -> bytes:
            text = f"{what}\0{shape.mechanism.sasl_name}\0{name}"
            return mac(shape.mechanism, self._secret, text.encode())

        blocks = -(-shape.salt_bytes // shape.mechanism.digest_bytes)
        salt = b"".join(made("salt" if number == 0 else f"salt {number}") for number in range(blocks))
        return ScramCredential(salt[: shape.salt_bytes], shape.iterations, made("stored key"), made("server key"))


class _Shapes:
    """The shapes of stored credentials, each with the number of credentials that have it."""

    def __init__(self, default: Shape) -> None:
        self._default = default
        self._counts: Counter[Shape] = Counter()
        self._candidates: list[Shape] | None = None

    def add(self, shape: Shape, change: int) -> None:
        known = shape in self._counts
        self._counts[shape] += change
        if not self._counts[shape]:
            del self._counts[shape]
        if known != (shape in self._counts):
            self._candidates = None

    def candidates(self) -> list[Shape]:
        """The shapes to choose from. Without users there is one: that of `semel user create`."""
        if self._candidates is None:
            self._candidates = [shape for shape, _ in self._counts.most_common(SHAPES_MAX)] or [self._default]
        return self._candidates


def _shape(mechanism: ScramMechanism, credential: ScramCredential) -> Shape:
    return Shape(mechanism, credential.iterations, len(credential.salt))
