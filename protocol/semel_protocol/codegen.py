"""Generates the encode and decode functions of a struct, for one version, as Python source.

Adjacent fields of fixed size share one `struct` call; the length of a string, blob or array shares the call of the
fields before it. So a small message takes few calls. Decoders check each length and count against the remaining bytes
before they allocate memory.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from semel_protocol import primitives
from semel_protocol.errors import ProtocolError
from semel_protocol.fields import LAST_VERSION, Array, Encoded, Field, Kind, fields_of

AnyStruct = type[msgspec.Struct]


STEP = 64
"""Array elements that one step encodes or decodes."""
NUMBERS_STEP = 4096
"""The same for an array of numbers, which share one `struct` call."""


class Functions(NamedTuple):
    """`in_steps`: both functions are generators; each yield gives the number of elements since the last one."""

    encode: Callable[[Any, Callable[[primitives.Buffer], None]], Any]
    decode: Callable[[memoryview, int], Any]
    in_steps: bool = False


def compile_codec(cls: AnyStruct, version: int, flexible: bool, *, in_steps: bool = False) -> Functions:
    """Functions `encode(message, write)` and `decode(view, at) -> (message, position)` of `cls` in `version`.

    `in_steps`: the functions are generators if `cls` has an array; they return the same values.
    """
    source = _Source(version, flexible, in_steps)
    source.struct(cls)
    text = "\n".join(source.lines) + "\n"
    name = f"<codec {cls.__name__} v{version}{' flexible' if flexible else ''}{' in steps' if in_steps else ''}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # so that tracebacks show the lines
    exec(compile(text, name, "exec"), source.names)  # noqa: S102 - the source is made of our own declarations only
    return Functions(source.names[f"enc_{cls.__name__}"], source.names[f"dec_{cls.__name__}"], source.is_long(cls))


def smallest(cls: AnyStruct, version: int, flexible: bool) -> int:
    """The minimum size of an encoded `cls` in bytes. It bounds the count of an array by the remaining bytes."""
    total = 1 if flexible else 0
    for field in fields_of(cls):
        if field.exists_in(version) and field.tag is None:
            total += _smallest_of(field.type, field.nullable_in(version), version, flexible)
    return total


def _smallest_of(kind: Kind | Array | AnyStruct, nullable: bool, version: int, flexible: bool) -> int:
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if isinstance(kind, Kind):
        if kind.is_fixed:
            return struct.calcsize(">" + kind.value)
        return 1 if flexible else (2 if kind is Kind.STRING else 4)
    return 1 if nullable else smallest(kind, version, flexible)


def is_flat(cls: AnyStruct) -> bool:
    """Whether `cls` has the same bytes in each version, except for its tag buffer (see `Encoded`)."""
    fields = fields_of(cls)
    plain = all(isinstance(field.type, Kind) and field.type.is_fixed for field in fields)
    return plain and all(field.tag is None and field.since == 0 and field.until == LAST_VERSION for field in fields)


class _Run:
    """Adjacent fixed-size fields, collected for one `struct` call."""

    def __init__(self) -> None:
        self.format = ""
        self.items: list[str] = []

    def add(self, fmt: str, item: str) -> None:
        self.format += fmt
        self.items.append(item)


class _Source:
    """The source of one codec: functions for the message and for every nested struct."""

    def __init__(self, version: int, flexible: bool, in_steps: bool) -> None:
        self.version, self.flexible, self._in_steps = version, flexible, in_steps
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "ProtocolError": ProtocolError,
            "uv": primitives.uvarint,
            "ruv": primitives.read_uvarint,
            "pack": struct.pack,
            "unpack_from": struct.unpack_from,
            "calcsize": struct.calcsize,
            "check_tags": primitives.check_tag_count,
            "Encoded": Encoded,
        }
        self._done: list[AnyStruct] = []
        self._body: list[str] = []
        self._run = _Run()
        self._count = 0

    def struct(self, cls: AnyStruct) -> None:
        if cls in self._done:
            return
        self._done.append(cls)
        fields = [f for f in fields_of(cls) if f.exists_in(self.version)]
        for field in fields:
            inner = field.type.element if isinstance(field.type, Array) else field.type
            if not isinstance(inner, Kind):
                self.struct(inner)
        fixed = [f for f in fields if f.tag is None]
        tagged = sorted((f for f in fields if f.tag is not None), key=lambda f: f.tag or 0)
        assert self.flexible or not tagged, f"{cls.__name__} has tagged fields but v{self.version} is not flexible"
        self.names[cls.__name__] = cls
        self._encoder(cls, fixed, tagged)
        self._decoder(cls, fixed, tagged)

    def is_long(self, cls: AnyStruct) -> bool:
        """Whether the functions of `cls` are generators: it is compiled in steps and contains an array."""
        if not self._in_steps:
            return False
        for field in fields_of(cls):
            if field.exists_in(self.version) and (
                isinstance(field.type, Array) or (not isinstance(field.type, Kind) and self.is_long(field.type))
            ):
                return True
        return False

    def _call(self, function: str, cls: AnyStruct, arguments: str) -> str:
        return f"{'yield from ' if self.is_long(cls) else ''}{function}_{cls.__name__}({arguments})"

    def _step(self, element: AnyStruct | Kind) -> list[str]:
        """The last lines of a loop over elements with counter `i`: they yield after every STEP elements."""
        if not self._in_steps:
            return []
        if not isinstance(element, Kind) and self.is_long(element):
            return ["yield 1"]
        return [f"if i % {STEP} == {STEP - 1}:", f"    yield {STEP}"]

    def _counting(self, items: str) -> str:
        return f"i, e in enumerate({items})" if self._in_steps else f"e in {items}"

    # Encoding

    def _encoder(self, cls: AnyStruct, fixed: list[Field], tagged: list[Field]) -> None:
        self._body, self._run, self._count = [], _Run(), 0
        for field in fixed:
            self._encode_value(field, f"m.{field.name}")
        if tagged:
            self._flush_encode()
            self._encode_tags(cls, tagged)
        elif self.flexible:
            self._run.add("B", "0")
        self._flush_encode()
        self.lines += [f"def enc_{cls.__name__}(m, w):", *(f"    {line}" for line in self._body or ["pass"]), ""]

    def _flush_encode(self) -> None:
        if self._run.items:
            self._body.append(f"w({self._packer(self._run.format)}.pack({', '.join(self._run.items)}))")
            self._run = _Run()

    def _packer(self, fmt: str) -> str:
        name = "s_" + fmt.replace("?", "o")
        self.names[name] = struct.Struct(">" + fmt)
        return name

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _encode_value(self, field: Field, value: str) -> None:
        nullable = field.nullable_in(self.version)
        kind = field.type
        if isinstance(kind, Array):
            self._encode_array(kind, value, nullable)
        elif isinstance(kind, Kind):
            if kind.is_fixed:
                self._run.add(kind.value, value)
            else:
                self._encode_blob(kind, value, nullable)
        elif nullable:
            self._flush_encode()
            self._body += [
                f"if {value} is None:",
                '    w(b"\\xff")',
                "else:",
                '    w(b"\\x01")',
                f"    {self._call('enc', kind, f'{value}, w')}",
            ]
        else:
            self._flush_encode()
            self._body.append(self._call("enc", kind, f"{value}, w"))

    def _encode_blob(self, kind: Kind, value: str, nullable: bool) -> None:
        name = self._fresh("b")
        encoded = f"{value}.encode()" if kind is Kind.STRING else value
        length = f"len({name})"
        if nullable:
            self._body.append(f'{name} = b"" if {value} is None else {encoded}')
            length = f"({-1} if {value} is None else len({name}))"
        else:
            self._body.append(f"{name} = {encoded}")
        self._encode_length(length, "h" if kind is Kind.STRING else "i")
        self._flush_encode()
        self._body.append(f"w({name})")

    def _encode_length(self, length: str, fmt: str) -> None:
        if self.flexible:
            self._flush_encode()
            self._body.append(f"w(uv({length} + 1))")
        else:
            self._run.add(fmt, length)

    def _encode_array(self, kind: Array, value: str, nullable: bool) -> None:
        length = f"(-1 if {value} is None else len({value}))" if nullable else f"len({value})"
        self._encode_length(length, "i")
        self._flush_encode()
        items = f"({value} or ())" if nullable else value
        element = kind.element
        if not isinstance(element, Kind):
            loop = [f"for {self._counting(items)}:", f"    {self._call('enc', element, 'e, w')}"]
            loop += [f"    {line}" for line in self._step(element)]
            if is_flat(element):
                joined = f'b"\\0".join((*{value}, b""))' if self.flexible else f'b"".join({value})'
                self._body += [f"if type({value}) is Encoded:", f"    w({joined})", "else:"]
                loop = [f"    {line}" for line in loop]
            self._body += loop
        elif element.is_fixed:
            self._encode_numbers(element, items)
        else:
            fmt = "h" if element is Kind.STRING else "i"
            encoded = "e.encode()" if element is Kind.STRING else "e"
            length = "w(uv(len(b) + 1))" if self.flexible else f"w({self._packer(fmt)}.pack(len(b)))"
            loop = [f"b = {encoded}", length, "w(b)", *self._step(element)]
            self._body += [f"for {self._counting(items)}:", *(f"    {line}" for line in loop)]

    def _encode_numbers(self, element: Kind, items: str) -> None:
        if not self._in_steps:
            self._body.append(f'w(pack(">" + "{element.value}" * len({items}), *{items}))')
            return
        self._body += [
            f"for k in range(0, len({items}), {NUMBERS_STEP}):",
            f"    c = {items}[k : k + {NUMBERS_STEP}]",
            f'    w(pack(">" + "{element.value}" * len(c), *c))',
            "    yield len(c)",
        ]

    def _encode_tags(self, cls: AnyStruct, tagged: list[Field]) -> None:
        self._body.append("t = []")
        for field in tagged:
            default = f"d_{cls.__name__}_{field.name}"
            self.names[default] = field.default
            outer, self._body = self._body, []
            self._encode_value(field, f"m.{field.name}")
            self._flush_encode()
            inner, self._body = self._body, outer
            self._body += [
                f"if m.{field.name} != {default}:",
                "    o, w2 = [], w",
                "    w = o.append",
                *(f"    {line}" for line in inner),
                "    w = w2",
                f'    t.append(({field.tag}, b"".join(o)))',
            ]
        self._body += ["w(uv(len(t)))", "for n, b in t:", "    w(uv(n))", "    w(uv(len(b)))", "    w(b)"]

    # Decoding

    def _decoder(self, cls: AnyStruct, fixed: list[Field], tagged: list[Field]) -> None:
        self._body, self._run, self._count = ["size = len(b)"], _Run(), 0
        for field in fixed:
            self._decode_value(field, f"v_{field.name}")
        self._flush_decode()
        if tagged:
            self._decode_tags(cls, tagged)
        elif self.flexible:
            self._body += ["if b[at] == 0:", "    at += 1", "else:", "    at = skip_tags(b, at)"]
            self.names["skip_tags"] = primitives.skip_tagged_fields
        made = ", ".join(f"{f.name}=v_{f.name}" for f in (*fixed, *tagged))
        missing = [f for f in fields_of(cls) if not f.exists_in(self.version) and f.default is msgspec.NODEFAULT]
        assert not missing, f"{cls.__name__}.{missing[0].name} needs a default for versions without it"
        self._body.append(f"return {cls.__name__}({made}), at")
        self.lines += [f"def dec_{cls.__name__}(b, at):", *(f"    {line}" for line in self._body), ""]

    def _flush_decode(self) -> None:
        if self._run.items:
            packer = self._packer(self._run.format)
            targets = ", ".join(self._run.items)
            self._body.append(f"{targets}, = {packer}.unpack_from(b, at)")
            self._body.append(f"at += {struct.calcsize('>' + self._run.format)}")
            self._run = _Run()

    def _decode_value(self, field: Field, target: str) -> None:
        nullable = field.nullable_in(self.version)
        kind = field.type
        if isinstance(kind, Array):
            self._decode_array(kind, field.name, target, nullable)
        elif isinstance(kind, Kind):
            if kind.is_fixed:
                self._run.add(kind.value, target)
            else:
                self._decode_blob(kind, field.name, target, nullable)
        elif nullable:
            self._flush_decode()
            self._body += [
                "at += 1",
                "if b[at - 1] > 127:",
                f"    {target} = None",
                "else:",
                f"    {target}, at = {self._call('dec', kind, 'b, at')}",
            ]
        else:
            self._flush_decode()
            self._body.append(f"{target}, at = {self._call('dec', kind, 'b, at')}")

    def _decode_length(self, name: str, what: str, fmt: str, nullable: bool) -> None:
        """Read the length into `name`: -1 for null if null is allowed; a negative one raises otherwise."""
        if self.flexible:
            self._flush_decode()
            self._body += [f"{name} = b[at] - 1", "at += 1"]
            self._body += [f"if {name} > 126:", f"    {name}, at = ruv(b, at - 1)", f"    {name} -= 1"]
        else:
            self._run.add(fmt, name)
            self._flush_decode()
        if not nullable:
            self._body += [f"if {name} < 0:", f'    raise ProtocolError("{what} is null or has a negative length")']
        elif not self.flexible:
            self._body += [f"if {name} < -1:", f'    raise ProtocolError("{what} has a negative length")']

    def _decode_blob(self, kind: Kind, what: str, target: str, nullable: bool) -> None:
        n = self._fresh("n")
        self._decode_length(n, what, "h" if kind is Kind.STRING else "i", nullable)
        take = {Kind.STRING: 'str(b[at:end], "utf-8")', Kind.BYTES: "bytes(b[at:end])", Kind.RECORDS: "b[at:end]"}[kind]
        lines = [
            f"end = at + {n}",
            "if end > size:",
            f'    raise ProtocolError(f"{what} of {{{n}}} bytes at byte {{at}} ends after the message")',
            f"{target} = {take}",
            "at = end",
        ]
        if nullable:
            lines = [f"if {n} < 0:", f"    {target} = None", "else:", *(f"    {line}" for line in lines)]
        self._body += lines

    def _decode_array(self, kind: Array, what: str, target: str, nullable: bool) -> None:
        n = self._fresh("n")
        self._decode_length(n, what, "i", nullable)
        element = kind.element
        least = max(1, _smallest_of(element, False, self.version, self.flexible))
        lines = [
            f"if {n} * {least} > size - at:",
            f'    raise ProtocolError(f"{what} has {{{n}}} elements, but only {{size - at}} bytes are left")',
        ]
        if not isinstance(element, Kind):
            lines += [
                f"{target} = []",
                f"for i in range({n}):",
                f"    e, at = {self._call('dec', element, 'b, at')}",
                f"    {target}.append(e)",
                *(f"    {line}" for line in self._step(element)),
            ]
        elif element.is_fixed:
            lines += self._decoded_numbers(element, target, n)
        else:
            outer, self._body = self._body, []
            self._decode_blob(element, what, "e", False)
            inner, self._body = self._body, outer
            lines += [f"{target} = []", f"for i in range({n}):"]
            lines += [f"    {line}" for line in (*inner, f"{target}.append(e)", *self._step(element))]
        if nullable:
            lines = [f"if {n} < 0:", f"    {target} = None", "else:", *(f"    {line}" for line in lines)]
        self._body += lines

    def _decoded_numbers(self, element: Kind, target: str, n: str) -> list[str]:
        size = struct.calcsize(">" + element.value)
        if not self._in_steps:
            return [f'{target} = list(unpack_from(">" + "{element.value}" * {n}, b, at))', f"at += {size} * {n}"]
        return [
            f"{target} = []",
            f"for k in range(0, {n}, {NUMBERS_STEP}):",
            f"    c = min({NUMBERS_STEP}, {n} - k)",
            f'    {target} += unpack_from(">" + "{element.value}" * c, b, at)',
            f"    at += {size} * c",
            "    yield c",
        ]

    def _decode_tags(self, cls: AnyStruct, tagged: list[Field]) -> None:
        for field in tagged:
            default = f"d_{cls.__name__}_{field.name}"
            self.names[default] = field.default
            # Messages without the tag share one default: a change to it would be seen in all of them.
            shared = field.default
            assert not isinstance(shared, msgspec.Struct) or shared.__struct_config__.frozen, f"{default} is not frozen"
            fresh = f"list({default})" if isinstance(field.type, Array) and field.default is not None else default
            self._body.append(f"v_{field.name} = {fresh}")
        self._body += ["count, at = ruv(b, at)", "check_tags(count)", "last = -1", "for _ in range(count):"]
        self._body += ["    number, at = ruv(b, at)", "    length, at = ruv(b, at)", "    stop = at + length"]
        self._body += ["    if stop > size:", '        raise ProtocolError("a tagged field ends after the message")']
        self._body += ["    if number <= last:", '        raise ProtocolError("tagged fields are not ascending")']
        self._body += ["    last = number", "    view, whole = b[:stop], b", "    if False:", "        pass"]
        for field in tagged:
            outer, self._body = self._body, []
            self._decode_value(field, f"v_{field.name}")
            self._flush_decode()
            inner, self._body = self._body, outer
            self._body.append(f"    elif number == {field.tag}:")
            self._body.append("        b, size = view, stop")
            self._body += [f"        {line}" for line in inner]
            self._body.append("        b, size = whole, len(whole)")
            self._body.append("        if at != stop:")
            self._body.append(f'            raise ProtocolError("tagged field {field.name} does not fill its length")')
        self._body.append("    at = stop")
