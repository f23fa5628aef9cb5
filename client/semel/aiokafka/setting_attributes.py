"""aiokafka's objects keep each setting as an attribute with an underscore, which libraries read."""

from __future__ import annotations

from typing import Any

import msgspec


class SettingAttributes:
    """`_enable_auto_commit` and so on: the settings of the object's `_config`."""

    def __getattr__(self, name: str) -> Any:
        config = self.__dict__.get("_config")
        setting = name.removeprefix("_")
        if setting != name and isinstance(config, msgspec.Struct) and setting in config.__struct_fields__:
            return getattr(config, setting)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
