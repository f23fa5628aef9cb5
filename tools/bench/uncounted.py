"""A broker without its counters, to measure what they cost: `python -m tools.bench.uncounted`, used as `semel serve`.

The lines that count are replaced in the source of their modules before these are imported. Each of them must be found.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Final

NONE: Final = "pass"
REPLACED: Final[dict[str, dict[str, str]]] = {
    "semel_storage.producers.producer_table": {
        "self.unreadable.marker(producer_id, base_offset, is_abort=is_abort)": NONE,
        "self.unreadable.data(producer_id, base_offset, header.last_offset_delta + 1)": NONE,
    },
    "semel_storage.log.log": {
        "self.batches_appended += 1": NONE,
    },
    "semel_broker.partitions.durability": {
        "self._count_sync(self._log.batches_appended)": NONE,
        "self._count_sync(batches)": NONE,
    },
    "semel_broker.txn.shard": {"self._count(slot.metadata, then)": NONE},
    "semel_broker.net.dispatch": {
        "work.api, work.client_id, work.size = api, peer.client_id, len(frame)": NONE,
        "self.work.request = request": NONE,
        "self.counters.count_errors(response)": NONE,
    },
    "semel_broker.net.pipeline": {
        "begun_at = now = loop.time() if now is None else now": NONE,
        "request.started_at = ended_at = loop.time()": NONE,
        "counters = request.counters": NONE,
        "counters.requests += 1": NONE,
        "counters.bytes_in += frame_bytes": NONE,
        "counters.handle_s += (handled_s := ended_at - begun_at)": NONE,
        "if handled_s > AT_ONCE_S:": "if False:",
        "if received_at or begun_at > now:": "if False:",
        "begun_at = ended_at": NONE,
        "context.work.request = context.work.api = None": NONE,
        "counters = context.requests.by_api.get(key) or context.requests.of(key)": "counters = None",
        "if self._queue and len(self._queue) > len(self._received_at):": "if False:",
        "request.answered_at = self._context.loop.time()": NONE,
        "request.counters.wait.observe(request.answered_at - request.started_at)": NONE,
        "request.answered_at = request.answered_at or self._context.loop.time()": NONE,
        "request.counters.bytes_out += answer_bytes": NONE,
        "request.counters.send.observe(self._context.loop.time() - request.answered_at)": NONE,
    },
}
"""By module: lines, and what is run in their place. Modules that others import come first."""


def uncounted(module: str) -> str:
    """The source of a module with its lines replaced. Raises LookupError: a line is not there."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        lines = file.read().split("\n")
    left = dict(REPLACED[module])
    for at, line in enumerate(lines):
        bare = line.strip()
        if bare in REPLACED[module]:
            lines[at] = line.replace(bare, REPLACED[module][bare])
            left.pop(bare, None)
    if left:
        raise LookupError(f"{module} has no line {next(iter(left))!r}: change REPLACED in bench/uncounted.py")
    return "\n".join(lines)


def uncount() -> None:
    """Import the modules without what they count."""
    for name in REPLACED:
        if name in sys.modules:
            raise ImportError(f"{name} is imported already: move it in REPLACED before the module that imports it")
        spec = find_spec(name)
        assert spec is not None
        source = compile(uncounted(name), f"<{name} without counters>", "exec")
        module = sys.modules[name] = module_from_spec(spec)
        exec(source, module.__dict__)


if __name__ == "__main__":
    uncount()
    from semel_broker.__main__ import serve

    serve()
