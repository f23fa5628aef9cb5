"""The diagrams of docs/states.md: one for each table of transitions (`NEXT`) in the packages."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path

import msgspec

from tools.website import ROOT

PACKAGES = ("protocol/semel_protocol", "storage/semel_storage", "broker/semel_broker", "client/semel", "pipeline")


class Diagram(msgspec.Struct, frozen=True):
    """One table. `first`: the state in which the object is made. `quiet`: states that nearly all others lead to; a
    sentence names their arrows instead."""

    title: str
    module: str
    about: str
    first: str
    quiet: tuple[str, ...] = ()

    @property
    def table(self) -> Mapping[Enum, tuple[Enum, ...]]:
        found: Mapping[Enum, tuple[Enum, ...]] = import_module(self.module).NEXT
        return found

    @property
    def path(self) -> str:
        file = import_module(self.module).__file__
        assert file is not None
        return Path(file).relative_to(ROOT).as_posix()


DIAGRAMS = (
    Diagram(
        "A shard of a coordinator",
        "semel_broker.coordination.shards",
        "One partition of `__consumer_offsets` or `__transaction_state` that this broker leads, in one leader epoch. A "
        "shard answers requests once it has read the partition.",
        "LOADING",
    ),
    Diagram(
        "A transaction, at its coordinator",
        "semel_broker.txn.model.metadata",
        "The state of a transactional id in `__transaction_state` (KIP-98). The outcome is decided once "
        "PREPARE_COMMIT or PREPARE_ABORT is durable; COMPLETE_* follows when every partition has its marker.",
        "EMPTY",
    ),
    Diagram(
        "A transaction group, at its coordinator",
        "semel_broker.txn.model.group_metadata",
        "The state of the last step of a transaction group: transactions of several producers that are committed "
        "together, or not at all.",
        "OPEN",
    ),
    Diagram(
        "A consumer group, at its coordinator",
        "semel_broker.groups.classic.group",
        "The state of a classic consumer group, under the names that DescribeGroups shows.",
        "EMPTY",
    ),
    Diagram(
        "A member of the consumer protocol, at its coordinator",
        "semel_broker.groups.consumer.model",
        "The state of a member in a group of the consumer protocol (KIP-848). UNREVOKED: it has to revoke partitions "
        "first. UNRELEASED: it waits for partitions that other members have to revoke.",
        "STABLE",
    ),
    Diagram(
        "A connection to a listener with SASL, at the broker",
        "semel_broker.security.sasl.states",
        "Which requests a connection may send (KIP-43, KIP-152, KIP-368). A refused connection is closed.",
        "HANDSHAKE",
        quiet=("REFUSED",),
    ),
    Diagram(
        "A session, in the client",
        "semel._net.session",
        "The authenticated session of one connection (KIP-368). While it is renewed, requests are held.",
        "NEW",
    ),
    Diagram(
        "An exchange of SCRAM, in the client",
        "semel._net.scram",
        "One authentication (RFC 5802). Broker and client prove to each other that they have the credentials.",
        "START",
    ),
    Diagram(
        "A producer's transaction, in the client",
        "semel._produce.transaction_state",
        "What a transactional producer may do next.",
        "UNINITIALIZED",
        quiet=("ENDED",),
    ),
    Diagram(
        "A batch, in the client",
        "semel._produce.accumulator",
        "From the first record to the outcome. A failed batch waits until no older batch of its partition is in "
        "flight, so that the retry keeps the order.",
        "WAITING",
    ),
    Diagram(
        "A group member, in the client",
        "semel._group.group",
        "The membership of one consumer.",
        "UNJOINED",
        quiet=("FAILED", "STOPPED"),
    ),
    Diagram(
        "A member of the consumer protocol, in the client",
        "semel._group.consumer_member",
        "The membership of one consumer with `group_protocol='consumer'` (KIP-848). RECONCILING: it revokes "
        "partitions, acknowledges, and adopts new ones.",
        "UNJOINED",
        quiet=("LEAVING", "FAILED"),
    ),
)


def modules_with_tables() -> list[str]:
    """All modules of the packages that define `NEXT`."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            names = [
                target.id
                for node in ast.parse(path.read_text()).body
                if isinstance(node, ast.Assign | ast.AnnAssign)
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(target, ast.Name)
            ]
            if "NEXT" in names:
                found.append(".".join(path.relative_to((ROOT / package).parent).with_suffix("").parts))
    return found


def drawn(diagram: Diagram) -> list[str]:
    """The diagram as Markdown with Mermaid."""
    table = diagram.table
    states = list(table)
    lines = [f"## {diagram.title}", "", f"{diagram.about} Table: [`{diagram.path}`](../{diagram.path}).", ""]
    lines += ["```mermaid", "stateDiagram-v2"]
    shown = [state for state in states if state.name not in diagram.quiet]
    lines += [f"    {state.name}: {_label(state)}" for state in shown if _label(state) != state.name]
    lines.append(f"    [*] --> {diagram.first}")
    lines += [f"    {state.name} --> {then.name}" for state in shown for then in table[state] if then in shown]
    lines += [f"    {state.name} --> [*]" for state in shown if not table[state]]
    lines += ["```", ""]
    for name in diagram.quiet:
        quiet = next(state for state in states if state.name == name)
        without = [f"`{state.name}`" for state in states if state is not quiet and quiet not in table[state]]
        rest = f", except from {', '.join(without)}" if without else ""
        lines += [f"Not drawn: every state leads to `{name}` ({quiet.value}){rest}.", ""]
    return lines


def _label(state: Enum) -> str:
    label = getattr(state, "label", None)
    return label if isinstance(label, str) else str(state.value)


def part() -> str:
    """All diagrams."""
    return "\n".join(line for diagram in DIAGRAMS for line in drawn(diagram))
