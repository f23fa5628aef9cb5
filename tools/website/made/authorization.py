"""The tables of docs/authorization.md, made of the table of requirements."""

from __future__ import annotations

from semel_broker.handlers import NEEDS
from semel_protocol.acls import OPERATIONS_OF, Operation, ResourceType
from semel_protocol.api import APIS


def requests() -> str:
    """The table of requests with what each requires."""
    rows = ["| key | request | operation | on | for |", "|---|---|---|---|---|"]
    for key, requirements in sorted(NEEDS.items()):
        needs = [need for requirement in requirements for need in requirement.needs]
        if not needs:
            rows.append(f"| {key} | {APIS[key].name} | none | | |")
        for at, (operation, kind, what) in enumerate(needs):
            first = f"{key} | {APIS[key].name}" if at == 0 else " | "
            rows.append(f"| {first} | {_words(operation)} | {_words(kind)} | {what.rstrip(':')} |")
    return "\n".join(rows)


def operations() -> str:
    """The table of operations of each type of resource."""
    rows = ["| resource | operations |", "|---|---|"]
    rows += [
        f"| {_words(kind)} | {', '.join(sorted(_words(each) for each in operations))} |"
        for kind, operations in OPERATIONS_OF.items()
    ]
    return "\n".join(rows)


def _words(value: Operation | ResourceType) -> str:
    return "".join(part.capitalize() for part in value.name.split("_"))
