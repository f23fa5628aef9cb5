"""aiokafka's `admin.config_resource`."""

from __future__ import annotations

import msgspec

from semel._admin import types
from semel._admin.types import ConfigResourceType

__all__ = ["ConfigResource", "ConfigResourceType"]


class ConfigResource(types.ConfigResource, frozen=True):
    """A topic or a broker. As in aiokafka the type may be a text such as "topic", and a broker's name a number."""

    def __post_init__(self) -> None:
        given: object = self.resource_type
        if not isinstance(given, ConfigResourceType):
            msgspec.structs.force_setattr(self, "resource_type", ConfigResourceType[str(given).upper()])
        msgspec.structs.force_setattr(self, "name", str(self.name))
