"""A broker to run under valgrind, used as `semel serve`: a request is slow there when it takes SLOWER times as long.

Histograms leave out quick requests (`AT_ONCE_S`). Under valgrind nearly all would be slow, and cost what they do not
elsewhere.
"""

from __future__ import annotations

from typing import Final

from semel_broker.counters import requests

SLOWER: Final = 50
"""About as many times as long does valgrind's callgrind take."""


if __name__ == "__main__":
    requests.AT_ONCE_S *= SLOWER  # type: ignore[misc]
    from semel_broker.__main__ import serve

    serve()
