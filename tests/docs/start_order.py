"""The order in which a program starts its transactional producers and the consumers of its groups."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

ClientKind = Literal["transactional producer", "group member"]
STARTS = {"start", "init_transactions", "subscribe"}
"""Methods that start a client; in librdkafka a producer by `init_transactions` and a member by `subscribe`."""


def late_producers(source: str) -> list[int]:
    """Lines that start a transactional producer after a member of a group, in one function.

    The member's start waits for the session of a member that was killed. The producer's start aborts the transaction
    that a killed producer left open. So with this order readers wait for the session, too.
    """
    tree = ast.parse(source)
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted({line for each in (tree, *functions) for line in _late(list(_starts(each)))})


def _late(starts: list[tuple[int, ClientKind]]) -> Iterator[int]:
    member_started = False
    for line, kind in starts:
        if kind == "group member":
            member_started = True
        elif member_started:
            yield line


def _starts(function: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, ClientKind]]:
    """The starts of clients in a function, in the order of its text."""
    names: dict[str, ClientKind] = {}
    for node in _in_order(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if kind := _kind(call):
                names[name] = kind
            case ast.withitem(context_expr=ast.Call() as call) if kind := _kind(call):
                yield call.lineno, kind
            case ast.withitem(context_expr=ast.Name(id=name)) if name in names:
                yield node.context_expr.lineno, names[name]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in names:
                if method in STARTS:
                    yield node.lineno, names[name]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one in the order of the text, without those of functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _in_order(child)


def _kind(call: ast.Call) -> ClientKind | None:
    """What a call makes, by the name of its class and its settings, also those of librdkafka in a dict."""
    name = (
        call.func.id
        if isinstance(call.func, ast.Name)
        else call.func.attr
        if isinstance(call.func, ast.Attribute)
        else ""
    )
    settings = {keyword.arg for keyword in call.keywords}
    for argument in call.args:
        if isinstance(argument, ast.Dict):
            settings |= {key.value.replace(".", "_") for key in argument.keys if isinstance(key, ast.Constant)}
    if name.endswith("Producer") and "transactional_id" in settings:
        return "transactional producer"
    if name.endswith("Consumer") and "group_id" in settings:
        return "group member"
    return None
