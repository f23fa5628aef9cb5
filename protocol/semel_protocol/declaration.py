"""Declares an API: its key, its messages and its versions. Each file of `messages` ends with one declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Any

from semel_protocol.api_key import ApiKey
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Codec, Message, codec

__all__ = ["Api", "ApiKey", "Feature", "Versions"]

Versions = tuple[int, int]
"""First and last version, as in an ApiVersions response."""


class Feature(Enum):
    """What the settings of a broker may switch on, and what then adds versions to those that it offers."""

    TRANSACTION_VERSION_2 = auto()
    """KIP-890."""
    GROUP_VERSION_1 = auto()
    """The consumer protocol of groups (KIP-848)."""
    TWO_PHASE_COMMIT = auto()
    """KIP-939."""
    TELEMETRY = auto()
    """Clients may push their metrics (KIP-714)."""


class Api:
    """One API of the protocol.

    `declared`: the versions `low` to `high`, which can be encoded and decoded. `flexible`: the first version with
    compact types and tag buffers (KIP-482), or None. `advertised`: the versions in ApiVersions, or None for an API that
    the broker does not offer. The advertised minimum is 0 although versions below `low` are refused: librdkafka up to
    2.11 and kcat enable features only if the range contains old versions, which they never send.

    `with_feature`: the last version that is advertised if the feature is in force, where that is above `advertised`.
    `needs_feature`: without this feature the API is not advertised at all.
    """

    __slots__ = (
        "advertised",
        "flexible",
        "high",
        "key",
        "low",
        "name",
        "needs_feature",
        "request",
        "response",
        "with_feature",
    )

    def __init__(
        self,
        key: ApiKey,
        request: type[Message],
        response: type[Message],
        *,
        declared: Versions,
        flexible: int | None,
        advertised: Versions | None,
        with_feature: Mapping[Feature, int] | None = None,
        needs_feature: Feature | None = None,
    ) -> None:
        self.key = int(key)  # tables with plain ints as keys are faster to look up
        self.name, self.request, self.response = request.__name__.removesuffix("Request"), request, response
        self.low, self.high = declared
        self.flexible, self.advertised = flexible, advertised
        self.with_feature, self.needs_feature = with_feature or {}, needs_feature

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} v{self.low}-{self.high}>"

    def offered(self, features: Collection[Feature]) -> Versions | None:
        """The versions that a broker with these features offers to clients; None: the API is not offered."""
        if self.advertised is None or (self.needs_feature is not None and self.needs_feature not in features):
            return None
        first, last = self.advertised
        return first, max([last, *(high for feature, high in self.with_feature.items() if feature in features)])

    def is_flexible(self, version: int) -> bool:
        """Whether `version` uses compact types and tag buffers (KIP-482)."""
        return self.flexible is not None and version >= self.flexible

    def request_codec(self, version: int) -> Codec[Message]:
        """The codec of the request's body in `version`."""
        return codec(self.request, version, self.is_flexible(version))

    def response_codec(self, version: int) -> Codec[Message]:
        """The codec of the response's body in `version`."""
        return codec(self.response, version, self.is_flexible(version))

    def encode_request(self, message: Message, version: int) -> bytes:
        """The request's body. Raises ProtocolError when a value does not fit."""
        return self.request_codec(version).encode_bytes(message)

    def encode_response(self, message: Message, version: int) -> bytes:
        """The response's body. Raises ProtocolError when a value does not fit."""
        return self.response_codec(version).encode_bytes(message)

    def decode_request(self, data: Buffer, version: int, at: int = 0) -> Any:
        """The request whose body starts at `at`. Raises ProtocolError."""
        return self.request_codec(version).decode(data, at)

    def decode_response(self, data: Buffer, version: int, at: int = 0) -> Any:
        """The response whose body starts at `at`. Raises ProtocolError."""
        return self.response_codec(version).decode(data, at)
