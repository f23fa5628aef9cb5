"""PURE: administrative operations: what a request changes, and how its response says what became of it.

An API is administrative if it changes something for others than its caller. Its handler has `AUDIT`; every other
handler has `NOT_AUDITED`, the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import msgspec
from semel_protocol.acls import Operation, ResourceType
from semel_protocol.refusals import error_codes, first_error

from semel_broker.context import RequestContext

Right = tuple[Operation, ResourceType, str]

CHANGES_NOTHING: Final = "changes nothing"
OWN_RECORDS: Final = "writes records or the state of the caller's own transaction"
LOGIN: Final = "a failed authentication has a line of its own, AUTHENTICATE"
OWN_GROUP: Final = "the caller is a member of the group, or commits its offsets"
OWN_METRICS: Final = "metrics of the client itself"


class AdministrativeChange(msgspec.Struct):
    """One operation of a request. `rights`: any of them is enough. `key`: finds its error code among those of the
    response. `changes`: what is changed, by name.
    """

    rights: Sequence[Right]
    key: Hashable
    operation: Operation
    kind: ResourceType
    name: str
    changes: Sequence[str] = ()


Codes = dict[Hashable, int]
"""Error codes by key of the deed; a deed without one has the code of the whole response."""
CodesOf = Callable[[Any, list[AdministrativeChange]], Codes]


class Administration(msgspec.Struct, frozen=True):
    """One API. `deeds`: what a request would do; called before anything is checked. `codes`: of its response.

    `refuses_itself`: the handler has refusals of authorization of its own, which have no other line. `without_change`:
    makes the request one that changes nothing, for an API that does more; None: such a request is refused.
    """

    deeds: Callable[[Any, RequestContext], list[AdministrativeChange]]
    codes: CodesOf
    refuses_itself: bool = False
    without_change: Callable[[Any], None] | None = None


def deed_on(
    operation: Operation, kind: ResourceType, name: str, changes: Sequence[str] = (), key: Hashable = None
) -> AdministrativeChange:
    """An operation that is its own right. `key` None: the name."""
    return AdministrativeChange([(operation, kind, name)], name if key is None else key, operation, kind, name, changes)


def code_of_all(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    """No code for a single deed: the response has one for all."""
    return {}


def code_of_first(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    """The first error of the response, for each deed."""
    return {deed.key: first_error(response) for deed in deeds}


def codes_by(field: str, name: str) -> CodesOf:
    """The code of each row of the response, by this field of the row; of a row without a code the first error in it."""

    def codes(response: Any, deeds: list[AdministrativeChange]) -> Codes:
        found: Codes = {}
        for row in getattr(response, field):
            inside = [row.error_code] if hasattr(row, "error_code") else [*error_codes(row)]
            if inside:
                found[getattr(row, name)] = next((code for code in inside if code), 0)
        return found

    return codes


def codes_by_position(field: str) -> CodesOf:
    """The code of each row of the response, by its position."""
    return lambda response, deeds: {at: row.error_code for at, row in enumerate(getattr(response, field))}
