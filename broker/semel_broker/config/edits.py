"""PURE: the settings after AlterConfigs or IncrementalAlterConfigs.

KIP-133 replaces all settings of a resource, KIP-339 edits some of them: set, delete (follow the default again), and for
lists append and subtract.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.settings import ConfigType, Setting

Configs = Mapping[str, str | None]


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(msgspec.Struct, frozen=True):
    """One setting to change. `operation`: as received, known or not."""

    name: str
    operation: int
    value: str | None


def replaced(edits: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    """The settings of a request that gives all of them. Raises INVALID_REQUEST if one is given twice or has no
    value.
    """
    _check_once([name for name, _ in edits])
    for name, value in edits:
        _check_value(name, value)
    return dict(edits)


def edited(
    given: Mapping[str, str],
    edits: Sequence[Edit],
    *,
    declared: Mapping[str, Setting],
    in_force: Callable[[str], str | None],
) -> dict[str, str | None]:
    """The settings `given` after `edits`; `in_force` returns the value to which a list is appended.

    Raises INVALID_REQUEST for an unknown operation, a missing value, or a setting named twice; INVALID_CONFIG for a
    list operation on a setting that is not a list. The caller checks whether names and values are allowed.
    """
    _check_once([edit.name for edit in edits])
    result: dict[str, str | None] = dict(given)
    for edit in edits:
        match edit.operation:
            case ConfigOperation.SET:
                _check_value(edit.name, edit.value)
                result[edit.name] = edit.value
            case ConfigOperation.DELETE:
                result.pop(edit.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                result[edit.name] = _list_edited(edit, declared, in_force)
            case _:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{edit.name}: operation {edit.operation} is none of 0 set, 1 delete, 2 append, 3 subtract",
                )
    return result


def _list_edited(edit: Edit, declared: Mapping[str, Setting], in_force: Callable[[str], str | None]) -> str:
    _check_value(edit.name, edit.value)
    setting = declared.get(edit.name)
    if setting is not None and setting.kind is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{edit.name} is no list: set it instead")
    now = _elements(in_force(edit.name) if setting is not None else None)
    asked = _elements(edit.value)
    if edit.operation == ConfigOperation.APPEND:
        return ",".join([*now, *(element for element in asked if element not in now)])
    return ",".join(element for element in now if element not in asked)


def _elements(value: str | None) -> list[str]:
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def _check_value(name: str, value: str | None) -> None:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: a value is missing; delete the setting instead")


def _check_once(names: list[str]) -> None:
    if len(dict.fromkeys(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{twice} is named twice in one request")
