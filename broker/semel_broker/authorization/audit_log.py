"""PURE: the audit: one JSON line for each refused request, each administrative operation, and each failed login.

A line names things: principals, resources, settings, ACLs. It never has a value of a setting, a password or a record.

Refusals are bounded. In a window of `WINDOW_S` the same refusal has one line when it happens, and at the end of the
window one more with the number of further times. A principal from one address has `LINES_MAX` different ones in a
window; the others are counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from semel_protocol.acls import Operation, ResourceType
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.visible import visible_json

from semel_broker.authorization.access import Access
from semel_broker.authorization.requirements import REFUSAL_OF
from semel_broker.context import RequestContext
from semel_broker.security.authorizer import Decision

WINDOW_S: Final = 60.0
LINES_MAX: Final = 100
SENDERS_MAX: Final = 1_000
"""Pairs of principal and address that are counted by themselves in a window."""
TEXT_MAX: Final = 256
"""Characters of a text that a client has chosen; longer ones are cut."""
LIST_MAX: Final = 100
"""Elements of `changes`; a last one counts the others."""

Fields = dict[str, Any]
Sender = tuple[str, str]
OTHERS: Final = ("*", "*")


class RefusedOfSender(msgspec.Struct):
    """The refusals of one sender in this window."""

    lines: dict[str, int] = {}
    """A line without time and count -> further times."""
    uncounted: int = 0
    """Refusals that have no line of their own."""


class AuditLog:
    """One per broker with an audit log. `write`: takes a line. `call_later`: seconds, and what to call then.

    `allowed`: see `audit.log.allowed`. `is_behind`: whether lines could not be written now and none may be lost, see
    `audit.log.required`. Then refusals are counted alone, and their lines follow once they can be written.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Any],
        allowed: str = "admin",
        is_behind: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_behind = is_behind
        self._write, self._now_ms, self._call_later = write, now_ms, call_later
        self.has_administration = allowed != "none"
        self.has_everything = allowed == "all"
        self._refused: dict[Sender, RefusedOfSender] = {}
        self._window: Any = None
        self._began = ""

    # --- what happens ----------------------------------------------------------------------------------------

    def refused(self, access: Access, operation: Operation, kind: ResourceType, name: str, decision: Decision) -> None:
        """The authorizer refused something that a request names."""
        fields = self._checked(access, "denied", operation, kind, name, decision)
        fields["error"] = REFUSAL_OF[kind].name if kind in REFUSAL_OF else ErrorCode.SECURITY_DISABLED.name
        self._refuse((access.principal.name, access.principal.host), fields)

    def permitted(
        self, access: Access, operation: Operation, kind: ResourceType, name: str, decision: Decision
    ) -> None:
        """The authorizer allowed something that is not administrative."""
        self._line(self._checked(access, "allowed", operation, kind, name, decision))

    def administered(
        self,
        ctx: RequestContext,
        api_key: int,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        rule: str,
        error: str,
        changes: Sequence[str] = (),
        transactional_id: str | None = None,
    ) -> None:
        """An administrative operation was allowed, and has been done unless there is an error."""
        fields = _fields(ctx, api_key, "allowed", operation, kind, name, transactional_id)
        fields |= {"rule": rule, "error": error}
        if changes:
            more = [f"and {len(changes) - LIST_MAX} more"] if len(changes) > LIST_MAX else []
            fields["changes"] = [*map(_cut, changes[:LIST_MAX]), *more]
        self._line(fields)

    def authentication_failed(
        self, host: str, listener: str, mechanism: str, reason: str, error: str = "", principal: str = ""
    ) -> None:
        """A client could not prove a principal. `mechanism`: SSL, or that of SASL. `principal`: the one it named.

        `error`: must not have anything that the client has sent as a secret.
        """
        fields = {
            "decision": "denied",
            "operation": "AUTHENTICATE",
            "principal": _cut(principal) or None,
            "host": host,
            "listener": listener,
            "mechanism": mechanism,
            "rule": reason,
            "error": _cut(error),
        }
        self._refuse((principal, host), fields)

    def close(self) -> None:
        """Write what is counted; the broker stops."""
        if self._window is not None:
            self._window.cancel()
        self._write_counts()

    # --- lines -----------------------------------------------------------------------------------------------

    def _checked(
        self, access: Access, decided: str, operation: Operation, kind: ResourceType, name: str, decision: Decision
    ) -> Fields:
        transactional_id = transactional_id_of(access.request)
        fields = _fields(access.ctx, access.api_key, decided, operation, kind, name, transactional_id)
        fields["rule"] = rule_of(decision)
        return fields

    def _refuse(self, sender: Sender, fields: Fields) -> None:
        """Write the refusal, or count it."""
        if self._window is None:
            self._began = self._time()
            self._window = self._call_later(WINDOW_S, self._end_window)
        if sender not in self._refused and len(self._refused) >= SENDERS_MAX:
            sender = OTHERS
        refused = self._refused.setdefault(sender, RefusedOfSender())
        key = msgspec.json.encode(fields).decode()
        if key in refused.lines:
            refused.lines[key] += 1
        elif len(refused.lines) >= LINES_MAX:
            refused.uncounted += 1
        elif self.is_behind():
            refused.lines[key] = 1
        else:
            refused.lines[key] = 0
            self._line(fields)

    def _end_window(self) -> None:
        if self.is_behind():
            self._window = self._call_later(WINDOW_S, self._end_window)
            return
        self._write_counts()

    def _write_counts(self) -> None:
        self._window = None
        all_refused, self._refused = self._refused, {}
        for (principal, host), refused in all_refused.items():
            for key, times in refused.lines.items():
                if times:
                    self._line({**msgspec.json.decode(key), "times": times, "since": self._began})
            if refused.uncounted:
                self._line(
                    {
                        "decision": "denied",
                        "principal": _cut(principal),
                        "host": host,
                        "rule": f"more than {LINES_MAX} different refusals",
                        "times": refused.uncounted,
                        "since": self._began,
                    }
                )

    def _line(self, fields: Fields) -> None:
        self._write(visible_json(msgspec.json.encode({"time": self._time(), **fields}).decode()))

    def _time(self) -> str:
        moment = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(
    ctx: RequestContext,
    api_key: int,
    decided: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    transactional_id: str | None,
) -> Fields:
    if kind is ResourceType.TRANSACTIONAL_ID:
        transactional_id = name
    return {
        "decision": decided,
        "operation": operation.name,
        "resource_type": kind.name,
        "resource": _cut(name),
        "principal": _cut(ctx.principal.name),
        "host": ctx.client_host,
        "listener": ctx.listener,
        "client_id": _cut(ctx.client_id),
        "api": APIS[api_key].name,
        "api_version": ctx.api_version,
        **({} if transactional_id is None else {"transactional_id": _cut(transactional_id)}),
    }


def rule_of(decision: Decision) -> str:
    """The entry that decided, or what else did."""
    return decision.why if decision.rule is None else str(decision.rule)


def transactional_id_of(request: Any) -> str | None:
    """The transactional id that a request names beside other resources."""
    for field in ("transactional_id", "v3_and_below_transactional_id"):
        if isinstance(name := getattr(request, field, None), str):
            return name
    return None


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
