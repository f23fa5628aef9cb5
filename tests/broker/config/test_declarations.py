"""Settings are declared as fields of structs: what a declaration may consist of."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta
from semel_broker.config.settings import Doc, settings_of

Level = Annotated[int, Meta(ge=1)]


def test_a_declaration_has_bounds_and_a_doc() -> None:
    class RightDeclaration(msgspec.Struct):
        level: Annotated[Level | None, Meta(le=9), Doc("A level.")] = None
        names: Annotated[tuple[Literal["a", "b"], ...] | None, Doc("Names.")] = None
        beside: int = 0

    assert list(settings_of(RightDeclaration)) == ["level", "names"]


def test_a_second_type_in_a_declaration_is_refused() -> None:
    """Such a type has no effect, so nothing else would notice it."""

    class Wrong(msgspec.Struct):
        codec: Annotated[str, Literal["gzip"], Doc("A codec.")]

    with pytest.raises(TypeError, match=r"Wrong.codec: .* is neither bounds .* nor a Doc"):
        settings_of(Wrong)

    class Deeper(msgspec.Struct):
        codecs: Annotated[tuple[Annotated[str, Level], ...], Doc("Codecs.")]

    with pytest.raises(TypeError, match=r"Deeper.codecs"):
        settings_of(Deeper)
