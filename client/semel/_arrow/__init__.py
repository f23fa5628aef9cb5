"""Records as Arrow columns: fetched batches in one pass, and records that a consumer has handed out *(pure)*.

Only these files import pyarrow and numpy, which the extra `semel[arrow]` installs. Callers import them in a function,
after `require_arrow`.
"""

from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from semel_protocol import extras


@runtime_checkable
class ArrowSchema(Protocol):
    """A `pyarrow.Schema`, or a `pyarrow.DataType`."""

    def equals(self, other: Any) -> bool: ...


def require_arrow(call: str) -> None:
    """Import what this package needs. call: the name of the caller, for the error.

    Raises ModuleNotFoundError with the extra that installs the packages.
    """
    for package in ("pyarrow", "numpy"):
        try:
            import_module(package)
        except ModuleNotFoundError as e:
            raise ModuleNotFoundError(
                extras.missing(call, package, "arrow"),
                name=package,
            ) from e
