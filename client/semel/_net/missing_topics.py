"""Knows which wanted topics the brokers do not describe, and gives the words for one warning about each."""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.errors import ErrorCode, error_code

from semel._edge import Edge
from semel._net.outage import LastingFacts
from semel._texts import similar
from semel.errors import error_for
from semel.structs import Metadata

SOON_S = 1.0
"""After this time a topic is missing: a broker may be creating it, or may lag behind the others."""
LATER_S = 5.0
"""The same for errors that pass, such as a missing leader."""


class MissingTopics:
    """The wanted topics without metadata. suggestions: the names that a missing one may mean, as a question."""

    def __init__(self, edge: Edge, client_id: str) -> None:
        self._client_id = client_id
        self._lasting: LastingFacts[str] = LastingFacts(edge)
        self.suggestions: dict[str, str] = {}

    def due(self, metadata: Metadata, wanted: Iterable[str]) -> dict[str, int]:
        """The topics to warn about now, with their error codes: each once, until it exists."""
        errors = {name: metadata.errors[name] for name in wanted if name in metadata.errors}
        for name in list(self.suggestions):
            if name not in errors:
                del self.suggestions[name]
        return {name: errors[name] for name in self._lasting.due({name: _after_s(errors[name]) for name in errors})}

    def warning(self, name: str, code: int, known: Iterable[str], *, may_be_created: bool) -> str:
        """The text of the warning. known: the topics that this client may see."""
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"client {self._client_id!r}: topic {name!r} cannot be used, trying again: {error_for(code)}"
        question = self.suggestions[name] = similar(name, known)
        asked = (
            "The broker was asked to create it and has not (auto.create.topics.enable)"
            if may_be_created
            else "This client does not ask the broker to create it"
        )
        return (
            f"client {self._client_id!r}: topic {name!r} does not exist, or this principal may not see it.{question} "
            f"{asked}. Waiting for it: create it, or correct the name"
        )


def _after_s(code: int) -> float:
    is_passing = code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and error_code(code).retriable
    return LATER_S if is_passing else SOON_S
