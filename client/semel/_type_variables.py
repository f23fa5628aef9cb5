"""The types of keys and values in `Producer[K, V]`, `Consumer[K, V]` and `ConsumerRecord[K, V]`.

Their default is Any (PEP 696), so the bare names stay complete annotations. Records are covariant in both: a
`Consumer[str, Order]` is a `Consumer[object, object]`. A producer is contravariant: one that takes every object takes
orders.

The type variables of `__init__` default to `bytes | None`, which is what a client without serializers takes. Overloads
would say the same, but then an error of a type checker lists all of them instead of the wrong argument.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K_co = TypeVar("K_co", covariant=True, default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)
    K_contra = TypeVar("K_contra", contravariant=True, default=Any)
    V_contra = TypeVar("V_contra", contravariant=True, default=Any)
    K_in = TypeVar("K_in", default=bytes | None)
    V_in = TypeVar("V_in", default=bytes | None)
    K_out = TypeVar("K_out", default=bytes | None)
    V_out = TypeVar("V_out", default=bytes | None)
    UNCHANGED: Callable[[bytes | None], bytes | None]
else:  # typing has defaults from Python 3.13 on
    from typing import TypeVar

    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)
    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)
    K_in, V_in, K_out, V_out = TypeVar("K_in"), TypeVar("V_in"), TypeVar("K_out"), TypeVar("V_out")
    UNCHANGED = None
