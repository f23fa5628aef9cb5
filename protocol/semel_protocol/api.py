"""The table of APIs: for each key the request, the response, the declared and the advertised versions.

An API is declared at the end of the file of its messages. That file is found by the name of its key.
"""

from __future__ import annotations

from importlib import import_module

from semel_protocol.api_key import ApiKey
from semel_protocol.declaration import Api
from semel_protocol.schema import Message

_MODULES = tuple(import_module(f"semel_protocol.messages.{key.file_name}") for key in ApiKey)

APIS: dict[int, Api] = {module.API.key: module.API for module in _MODULES}
API_OF: dict[type[Message], Api] = {cls: api for api in APIS.values() for cls in (api.request, api.response)}

__all__ = ["APIS", "API_OF", "Api", "ApiKey"]
