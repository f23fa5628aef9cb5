"""Checks the arguments of public calls against the annotations of their parameters, before a call does anything.

A value of another type raises TypeError, one that cannot be sent raises ValueError. Both name the argument, down to
the element or field, and the value: `new_topics[0].topic_configs['retention.ms']=1000 (int): give a str`.

Iterables are read once, into a list, so a generator is taken. A str is never taken as an iterable of its characters.
A tuple of the right values is taken for a TopicPartition, and an integer of numpy for an int.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar, cast

import msgspec
from semel_protocol.errors import PortableError
from semel_protocol.visible import shown

from semel._config.settings import INT32_MAX, INT64_MAX, TEXT_BYTES_MAX
from semel.structs import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[str, Any], Any]
"""Takes the path of a value for error messages and the value. Returns the value to use. Raises RefusedError."""

INT64 = (-INT64_MAX - 1, INT64_MAX)
SECRETS = ("password", "salt")
"""Fields whose values stay out of error messages."""
NO_LISTS = (str, bytes, bytearray, memoryview)
"""Iterables that stand for one value."""


class RefusedError(PortableError):
    """A check refuses a value. `apply` raises it as `kind`."""

    def __init__(self, kind: type[TypeError] | type[ValueError], text: str) -> None:
        self.kind, self.text = kind, text
        super().__init__(text)


def checked(function: F) -> F:
    """Make a method check its arguments. Raises TypeError, ValueError."""

    @functools.cache
    def parameters() -> tuple[inspect.Signature, dict[str, Check]]:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function)
        return signature, {name: check_of(hints[name]) for name in signature.parameters if name in hints}

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        signature, checks = parameters()
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name not in checks:
                continue
            if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(apply(checks[name], name, each) for each in value)
            else:
                bound.arguments[name] = apply(checks[name], name, value)
        return bound

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checking(*args: Any, **kwargs: Any) -> Any:
            bound = arguments(args, kwargs)
            return await function(*bound.args, **bound.kwargs)

    else:

        @functools.wraps(function)
        def checking(*args: Any, **kwargs: Any) -> Any:
            bound = arguments(args, kwargs)
            return function(*bound.args, **bound.kwargs)

    return cast(F, checking)


def apply(check: Check, name: str, value: Any) -> Any:
    """The value of the argument `name`, checked. Raises TypeError, ValueError."""
    try:
        return check(name, value)
    except RefusedError as refusal:
        raise refusal.kind(refusal.text) from None
    except Exception as error:  # of the value's own methods
        raise ValueError(f"{name}={shown(value)}: reading it raises {type(error).__name__}: {shown(error)}") from error


def argument(name: str, value: Any, hint: Any) -> Any:
    """The value of one argument that has this annotation. Raises TypeError, ValueError."""
    return apply(check_of(hint), name, value)


def text(name: str, value: Any) -> str:
    """A str that a request can carry. Raises TypeError, ValueError."""
    return cast(str, apply(_text, name, value))


def whole(name: str, value: Any, least: int, most: int, what: str = "an int") -> int:
    """A whole number in this range. Raises TypeError, ValueError."""
    return cast(int, apply(functools.partial(_whole, least=least, most=most, what=what), name, value))


def check_times(timestamps: Mapping[TopicPartition, int]) -> None:
    """Raise ValueError for a negative time: the protocol has other meanings for those."""
    for partition, timestamp in timestamps.items():
        if timestamp < 0:
            raise ValueError(f"timestamp={timestamp} of {partition}: give milliseconds since the epoch")


@functools.cache
def check_of(hint: Any) -> Check:
    """The check of an annotation."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return lambda path, value: value
    if origin in (typing.Union, types.UnionType):
        return _union(inner)
    if origin is typing.Annotated:
        return check_of(inner[0])
    if origin is typing.Literal:
        return functools.partial(_literal, allowed=inner)
    if origin is re.Pattern:
        return _pattern
    kind = hint if origin is None else origin
    if not isinstance(kind, type):
        raise TypeError(f"{hint!r} has no check")
    if issubclass(kind, Mapping):
        return _mapping(*inner)
    if origin is tuple and inner[-1] is not Ellipsis:
        return functools.partial(_of_length, checks=[check_of(each) for each in inner])
    if origin is not None and issubclass(kind, Iterable):
        return _many(inner[0], tuple if origin is tuple else list, takes_mappings=origin is Iterable)
    if issubclass(kind, msgspec.Struct):
        return functools.partial(_struct, kind=kind)
    if issubclass(kind, tuple):
        return functools.partial(_named_tuple, kind=kind)
    return functools.partial(_instance, kind=kind)


def refused(path: str, value: Any, what: str, kind: type[TypeError] | type[ValueError] = TypeError) -> RefusedError:
    """The exception for a check to raise. what: what to give in place of the value."""
    of_type = f" ({type(value).__name__})" if kind is TypeError and value is not None else ""
    is_secret = path.rpartition(".")[2] in SECRETS
    return RefusedError(kind, f"{path}{'' if is_secret else f'={shown(value)}'}{of_type}: {what}")


def _none(path: str, value: Any) -> None:
    if value is not None:
        raise refused(path, value, "give None")


def _flag(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refused(path, value, "give True or False")
    return value


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise refused(path, value, "give a str")
    plain = str.__str__(value)
    try:
        size = len(plain.encode())
    except UnicodeEncodeError as error:
        raise refused(path, value, f"it is not Unicode text: {error.reason}", ValueError) from None
    if size > TEXT_BYTES_MAX:
        raise refused(path, value, f"it has {size} bytes, and a request carries {TEXT_BYTES_MAX}", ValueError)
    return plain


def _bytes(path: str, value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise refused(path, value, "give bytes")
    return value


def _whole(path: str, value: Any, least: int = -INT64_MAX - 1, most: int = INT64_MAX, what: str = "an int") -> int:
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise refused(path, value, f"give {what}")
    number = operator.index(value)
    if not least <= number <= most:
        raise refused(path, value, f"give {what} from {least} to {most}", ValueError)
    return number


def _number(path: str, value: Any) -> float:
    if isinstance(value, float):
        if math.isnan(value):
            raise refused(path, value, "give a number", ValueError)
        return value
    try:
        return _whole(path, value)
    except RefusedError as refusal:
        if refusal.kind is TypeError:
            raise refused(path, value, "give a number") from None
        raise


def _pattern(path: str, value: Any) -> re.Pattern[str]:
    if not isinstance(value, re.Pattern) or not isinstance(value.pattern, str):
        raise refused(path, value, "give a regular expression for str")
    return value


def _literal(path: str, value: Any, allowed: Sequence[Any]) -> Any:
    if not any(type(value) is type(each) and value == each for each in allowed):
        raise refused(path, value, f"give one of {', '.join(map(repr, allowed))}", ValueError)
    return value


def _instance(path: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    if issubclass(kind, IntEnum) and isinstance(value, int) and not isinstance(value, bool):
        try:
            return kind(int(value))
        except ValueError:
            names = ", ".join(each.name for each in kind)
            raise refused(path, value, f"give one of {kind.__name__}: {names}", ValueError) from None
    raise refused(path, value, f"give {_a(kind)}")


def _union(kinds: tuple[Any, ...]) -> Check:
    others = [each for each in kinds if each is not types.NoneType]
    checks, may_be_none = [check_of(each) for each in others], len(others) < len(kinds)

    def check(path: str, value: Any) -> Any:
        if value is None and may_be_none:
            return None
        refusals = []
        for each in checks:
            try:
                return each(path, value)
            except RefusedError as refusal:
                refusals.append(refusal)
        if len(refusals) == 1:
            raise refusals[0]
        # The most exact one: of a value inside, of a type that fits with another value, or with the right form.
        exact = [
            each
            for each in refusals
            if each.kind is ValueError or not each.text.startswith(f"{path}=") or f"{path}=[" in each.text
        ]
        raise exact[0] if exact else refused(path, value, f"give {_described(kinds)}")

    return check


def _of_length(path: str, value: Any, checks: Sequence[Check]) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or len(value) != len(checks):
        raise refused(path, value, f"give a tuple of {len(checks)}")
    return tuple(check(f"{path}[{at}]", each) for at, (check, each) in enumerate(zip(checks, value, strict=True)))


def _many(element: Any, made: type[list[Any]] | type[tuple[Any, ...]], *, takes_mappings: bool) -> Check:
    """takes_mappings: a dict counts as its keys."""
    each_of = check_of(element)

    def check(path: str, value: Any) -> list[Any] | tuple[Any, ...]:
        if element is not Any and isinstance(value, str | tuple) and _fits(each_of, path, value):
            raise refused(path, value, f"this is one of them: give a list, as in {path}=[{shown(value)}]")
        if isinstance(value, NO_LISTS if takes_mappings else (*NO_LISTS, Mapping)) or not isinstance(value, Iterable):
            raise refused(
                path, value, "give a list" if element is Any else f"give a list, each {_described((element,))}"
            )
        return made(each_of(f"{path}[{at}]", each) for at, each in enumerate(value))

    return check


def _mapping(key: Any, element: Any) -> Check:
    check_key, check_value = check_of(key), check_of(element)

    def check(path: str, value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise refused(path, value, f"give a dict: from {_described((key,))} to {_described((element,))}")
        return {
            check_key(f"a key of {path}", each): check_value(f"{path}[{shown(each)}]", of_it)
            for each, of_it in value.items()
        }

    return check


def _struct(path: str, value: Any, kind: type[msgspec.Struct]) -> Any:
    if not isinstance(value, kind):
        raise refused(path, value, f"give {_a(kind)}")
    changed = {}
    for name, check in _fields(kind).items():
        before = getattr(value, name)
        after = check(f"{path}.{name}", before)
        if after is not before:
            changed[name] = after
    return msgspec.structs.replace(value, **changed) if changed else value


def _named_tuple(path: str, value: Any, kind: type[tuple[Any, ...]]) -> Any:
    if kind is TopicPartition:
        return _partition(path, value)
    if not isinstance(value, tuple | list):
        raise refused(path, value, f"give {_a(kind)}")
    try:
        made = value if isinstance(value, kind) else kind(*value)
    except TypeError:
        raise refused(path, value, f"give {_a(kind)}") from None
    checks = _fields(kind)
    return kind(*(check(f"{path}.{name}", each) for (name, check), each in zip(checks.items(), made, strict=True)))


def _partition(path: str, value: Any) -> TopicPartition:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise refused(path, value, "it is not a TopicPartition, as in TopicPartition('flights', 0)")
    return TopicPartition(_text(f"{path}.topic", value[0]), _whole(f"{path}.partition", value[1], 0, INT32_MAX))


@functools.cache
def _fields(kind: type) -> dict[str, Check]:
    """The checks of the fields of a Struct or NamedTuple, in order."""
    hints = typing.get_type_hints(kind)
    names = kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else kind._fields  # type: ignore[attr-defined]
    return {name: check_of(hints[name]) for name in names}


def _fits(check: Check, path: str, value: Any) -> bool:
    try:
        check(path, value)
    except RefusedError:
        return False
    return True


def _described(kinds: tuple[Any, ...]) -> str:
    return " or ".join(_a(typing.get_origin(each) or each) for each in kinds)


def _a(kind: Any) -> str:
    if kind is types.NoneType:
        return "None"
    if kind in (typing.Union, types.UnionType):
        return "one of several types"
    name = "list" if kind in (Sequence, Iterable) else getattr(kind, "__name__", str(kind))
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


_PLAIN: dict[Any, Check] = {
    type(None): _none,
    None: _none,
    bool: _flag,
    str: _text,
    bytes: _bytes,
    int: _whole,
    float: _number,
}
