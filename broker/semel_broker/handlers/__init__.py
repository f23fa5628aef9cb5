"""The handlers of client requests: one file for each API, named after its key.

`APIS` declares the messages and the versions of each API. A file has all that the broker knows of its API besides:

- `handle` unpacks the request, checks it, calls one object of the broker and packs the response:

      async def handle(request: XRequest, ctx: RequestContext) -> XResponse | None

  None means that the request gets no answer (Produce with acks=0). A handler runs without a task up to its first wait
  (`scheduling/eager.py`), so one that never waits costs no more than a plain call. One that may have much to do
  works in slices: `ctx.slices()`. A request holds back the later ones of its connection until it is answered, unless
  the handler sets `ctx.order.next_may_start`.
- `NEEDS`: what the principal must be allowed, as in Kafka. docs/authorization.md shows it.
- `AUDIT`: what the request changes for others than its sender; or `NOT_AUDITED`: why it has no line in the audit log.
- `LONG_ANSWER = True`: the response may be long although the request is short, so it is encoded in slices.

If a handler raises KafkaError, the response carries the error code. If the response has no top-level error code, the
connection is closed. Only Fetch handlers are cancelled when their connection is lost: a request that has begun to
persist a change also applies it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from semel_protocol.api_key import ApiKey

from semel_broker.authorization.administration import Administration
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import Handler

_MODULES: Final[dict[int, ModuleType]] = {
    key.value: import_module(f"semel_broker.handlers.{key.file_name}") for key in ApiKey
}

HANDLERS: Final[dict[int, Handler]] = {key: module.handle for key, module in _MODULES.items()}
NEEDS: Final[dict[int, Requirements]] = {key: module.NEEDS for key, module in _MODULES.items()}
AUDITS: Final[dict[int, Administration]] = {
    key: module.AUDIT for key, module in _MODULES.items() if hasattr(module, "AUDIT")
}
NOT_AUDITED: Final[dict[int, str]] = {
    key: module.NOT_AUDITED for key, module in _MODULES.items() if not hasattr(module, "AUDIT")
}
LONG_ANSWERS: Final = frozenset(key for key, module in _MODULES.items() if hasattr(module, "LONG_ANSWER"))
"""By API key."""
