"""PURE: deserialized keys and values as Arrow columns: structs, dataclasses and dicts become struct columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect

KEPT = (bytes, datetime, date, time, timedelta, Decimal)
"""Types that Arrow takes as they are."""
PLAIN = (type(None), bool, int, float, str, *KEPT)
DECIMAL = pa.decimal128(38, 9)
"""As BigQuery's NUMERIC: Python's Decimal does not say how many digits follow the point."""
OF_TYPE: dict[type[inspect.Type], pa.DataType] = {
    inspect.NoneType: pa.null(),
    inspect.BoolType: pa.bool_(),
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.StrType: pa.string(),
    inspect.BytesType: pa.binary(),
    inspect.UUIDType: pa.string(),
    inspect.DecimalType: DECIMAL,
    inspect.DateType: pa.date32(),
    inspect.TimeType: pa.time64("us"),
    inspect.DateTimeType: pa.timestamp("us", tz="UTC"),
    inspect.TimeDeltaType: pa.duration("us"),
}
LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)
STRUCTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


def arrow_type(python_type: Any) -> pa.DataType | None:
    """The Arrow type of this Python type: of a msgspec Struct, a dataclass, a TypedDict, a simple type, and of lists
    and dicts of them. None for a type without one, such as Any, or a union of two structs.
    """
    try:
        return _of(inspect.type_info(python_type), ())
    except TypeError:
        return None


def _of(info: inspect.Type, outer: tuple[Any, ...]) -> pa.DataType | None:
    """outer: the classes around this one; a class inside of itself has no Arrow type."""
    if type(info) in OF_TYPE:
        return OF_TYPE[type(info)]
    if isinstance(info, inspect.UnionType):
        kinds = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _of(kinds[0], outer) if len(kinds) == 1 else None
    if isinstance(info, LISTS):
        item = _of(info.item_type, outer)
        return None if item is None else pa.list_(item)
    if isinstance(info, inspect.DictType):
        key, value = _of(info.key_type, outer), _of(info.value_type, outer)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(info, (inspect.EnumType, inspect.LiteralType)):
        values = [each.value for each in info.cls] if isinstance(info, inspect.EnumType) else info.values
        return pa.int64() if all(isinstance(each, int) for each in values) else pa.string()
    if isinstance(info, STRUCTS) and info.cls not in outer:
        fields = [(each.encode_name, _of(each.type, (*outer, info.cls))) for each in info.fields]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    return None


def as_type(schema: Any) -> pa.DataType | None:
    """The type of a column of values: `schema` itself, or a struct of its fields. Raises TypeError for something
    else.
    """
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if schema is None or isinstance(schema, pa.DataType):
        return schema
    raise TypeError(f"value_schema is {type(schema).__name__}: give a pyarrow.Schema or a pyarrow.DataType")


class ObjectColumn:
    """The column of the keys or of the values, of batches that follow each other.

    name: of the column. declared: its type. None takes that of the first batch for all if they are `fixed`, or else for
    each batch that of its own values.
    """

    def __init__(self, name: str, declared: pa.DataType | None, *, fixed: bool) -> None:
        self.name, self.type, self._fixed = name, declared, fixed
        self._declared = declared is not None

    def array(self, objects: Sequence[Any]) -> pa.Array:
        """The column of these values. Raises TypeError for an object that has no Arrow value, ValueError for one that
        does not fit the type.
        """
        plain = [each if type(each) in PLAIN else self._plain(each) for each in objects]
        try:
            if self._declared:
                return pa.array(plain, self.type)
            found = pa.array(plain)
            if self.type is None and self._fixed:
                self.type = found.type
            return found if not self._fixed or found.type == self.type else self._as_the_first(plain, found.type)
        except pa.ArrowException as e:
            raise ValueError(f"the column {self.name} cannot be made: {e}. {self._advice}") from e

    def _plain(self, value: Any) -> Any:
        try:
            return msgspec.to_builtins(value, builtin_types=KEPT, enc_hook=_fields_of_model)
        except TypeError as e:
            raise TypeError(
                f"{self.name} is {type(value).__name__}, which is no column: {e}. Give a deserializer that makes "
                "dicts, dataclasses, msgspec Structs or simple values"
            ) from e

    def _as_the_first(self, plain: list[Any], found: pa.DataType) -> pa.Array:
        """The values in the type of the first batch. Raises ValueError if it has no place for them."""
        both = [pa.schema([(self.name, each)]) for each in (self.type, found)]
        if pa.unify_schemas(both, promote_options="permissive").field(0).type != self.type:
            raise ValueError(
                f"the column {self.name} is {self.type} in the first batch and {found} in a later one. {self._advice}"
            )
        return pa.array(plain, self.type)

    @property
    def _advice(self) -> str:
        return "Give value_schema=, the type of the values" if self.name == "value" else "Give another key_deserializer"


def _fields_of_model(value: Any) -> Any:
    """The fields of a model of pydantic. Raises TypeError for any other object."""
    dump: Callable[[], Any] | None = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError("Arrow has no value for it")
    return dump()
