"""Types of Python as types of Arrow, and their values in a column."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from pydantic import BaseModel
from semel._arrow.objects import ObjectColumn, arrow_type


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Inner:
    at: datetime
    ids: set[UUID] | None = None


class Options(TypedDict):
    wide: bool


class Everything(msgspec.Struct, rename="camel"):
    one_text: str
    number: int
    share: float | None
    flag: bool
    data: bytes
    day: date
    clock: time
    took: timedelta
    price: Decimal
    colour: Colour
    level: Level
    kind: Literal["a", "b"]
    inner: Inner
    options: Options
    tags: list[str]
    counts: dict[str, int]
    pair: tuple[int, ...] = ()


class TreeOfTrees(msgspec.Struct):
    children: list[TreeOfTrees] = []


class SaleModel(BaseModel):
    item: str


NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
ID = UUID(int=7)
VALUE = Everything(
    "t", 1, None, True, b"d", date(2026, 11, 28), time(12), timedelta(seconds=1), Decimal("1.25"), Colour.RED,
    Level.LOW, "a", Inner(NOON, {ID}), {"wide": True}, ["x"], {"y": 2}, (3,),
)  # fmt: skip
TYPE = pa.struct(
    [
        ("oneText", pa.string()),
        ("number", pa.int64()),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("data", pa.binary()),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("took", pa.duration("us")),
        ("price", pa.decimal128(38, 9)),
        ("colour", pa.string()),
        ("level", pa.int64()),
        ("kind", pa.string()),
        ("inner", pa.struct([("at", pa.timestamp("us", tz="UTC")), ("ids", pa.list_(pa.string()))])),
        ("options", pa.struct([("wide", pa.bool_())])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("pair", pa.list_(pa.int64())),
    ]
)


def test_each_type_has_its_arrow_type_and_its_value() -> None:
    assert arrow_type(Everything) == TYPE
    column = ObjectColumn("value", TYPE, fixed=True).array([VALUE, None])
    column.validate(full=True)
    assert column.type == TYPE
    first, second = column.to_pylist()
    assert second is None
    assert first == {
        "oneText": "t", "number": 1, "share": None, "flag": True, "data": b"d", "day": date(2026, 11, 28),
        "clock": time(12), "took": timedelta(seconds=1), "price": Decimal("1.25"), "colour": "red", "level": 1,
        "kind": "a", "inner": {"at": NOON, "ids": [str(ID)]}, "options": {"wide": True}, "tags": ["x"],
        "counts": [("y", 2)], "pair": [3],
    }  # fmt: skip


@pytest.mark.parametrize(
    "given", [Any, TreeOfTrees, Everything | Inner, list[Any], dict[str, Any], int | str, object, 5]
)
def test_a_type_that_does_not_say_its_columns_has_none(given: Any) -> None:
    assert arrow_type(given) is None


def test_a_model_of_pydantic_is_a_struct() -> None:
    assert ObjectColumn("value", None, fixed=True).array([SaleModel(item="tea")]).to_pylist() == [{"item": "tea"}]


def test_a_price_with_too_many_digits_is_an_error_and_not_rounded() -> None:
    with pytest.raises(ValueError, match="column value cannot be made"):
        ObjectColumn("value", arrow_type(Decimal), fixed=True).array([Decimal("0.12345678901")])
