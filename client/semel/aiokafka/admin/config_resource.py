"""aiokafka's `admin.config_resource`."""

from semel.admin import ConfigResource, ConfigResourceType

__all__ = ["ConfigResource", "ConfigResourceType"]
