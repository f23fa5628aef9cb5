"""PURE: a record as the bytes that `semel consume` prints: by a pattern, or as a line of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import click
import msgspec
from semel_protocol.visible import encodable, visible_bytes, visible_json

from semel import ConsumerRecord
from semel._command_line.common import given_bytes

Record = ConsumerRecord[bytes | None, bytes | None]
Show = Callable[[Record], bytes]
Encode = Callable[[bytes], bytes]
ESCAPES = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\r": b"\r", "\\\\": b"\\", "%%": b"%"}
ENCODINGS: dict[str, Encode] = {
    "text": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}


class Form(msgspec.Struct, frozen=True):
    """How records are printed.

    encoding: of keys, values and headers, one of ENCODINGS. null: the text for a missing key or value. escaped: escape
    control characters of records.
    """

    encoding: str = "text"
    null: bytes = b""
    escaped: bool = False


def fields(form: Form) -> dict[str, Show]:
    """The fields of a pattern."""
    encode, null = ENCODINGS[form.encoding], form.null

    def shown(data: bytes | None) -> bytes:
        return null if data is None else encode(data)

    return {
        "%k": lambda r: shown(r.key),
        "%v": lambda r: shown(r.value),
        "%t": lambda r: r.topic.encode(),
        "%p": lambda r: b"%d" % r.partition,
        "%o": lambda r: b"%d" % r.offset,
        "%T": lambda r: b"%d" % r.timestamp,
        "%K": lambda r: b"%d" % _length(r.key),
        "%S": lambda r: b"%d" % _length(r.value),
        "%h": lambda r: b",".join(b"%b=%b" % (given_bytes(key), shown(value)) for key, value in r.headers),
    }


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def by_pattern(pattern: str, form: Form) -> Show:
    """A function from a record to the bytes of `pattern`. Raises click.BadParameter for an unknown %x."""
    known = fields(form)
    if pattern == "%v\\n" and form == Form():
        return lambda record: (record.value or b"") + b"\n"
    parts: list[bytes | Show] = []
    at = 0
    while at < len(pattern):
        two = pattern[at : at + 2]
        if two in known:
            parts.append(_escaped(known[two]) if form.escaped else known[two])
        elif two in ESCAPES:
            parts.append(ESCAPES[two])
        elif two.startswith("%"):
            raise click.BadParameter(f"{two!r} is not a field; fields: {' '.join(known)} %%", param_hint="--format")
        else:
            parts.append(given_bytes(pattern[at]))
            at -= 1
        at += 2
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def _escaped(field: Show) -> Show:
    return lambda record: visible_bytes(field(record)).encode()


def as_json(form: Form) -> Show:
    """A function from a record to a line of JSON.

    With the encoding "text", a key or value that is not UTF-8 is readable under its name, with \\xNN for the bytes that
    are not, and exact under `key_base64` or `value_base64`. Such a header has its base64 as a third element. In the
    name of a header, a byte that is not UTF-8 is \\udcNN.
    """

    def show(record: Record) -> bytes:
        made: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        for name, data in (("key", record.key), ("value", record.value)):
            shown = _texts(data, form)
            made[name] = shown[0]
            if len(shown) > 1:
                made[f"{name}_base64"] = shown[1]
        made["headers"] = [[encodable(key), *_texts(value, form)] for key, value in record.headers]
        encoded = msgspec.json.encode(made)
        return (visible_json(encoded.decode()).encode() if form.escaped else encoded) + b"\n"

    return show


def _texts(data: bytes | None, form: Form) -> list[str | None]:
    """The text of a key, value or header; with base64 when the text does not have all of it."""
    if data is None:
        return [None]
    if form.encoding != "text":
        return [ENCODINGS[form.encoding](data).decode()]
    try:
        return [data.decode()]
    except UnicodeDecodeError:
        return [data.decode("utf-8", "backslashreplace"), base64.b64encode(data).decode()]
