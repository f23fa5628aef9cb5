"""Changes of a log in steps: what a step leaves unsynced must be durable before the next one begins.

A change is a generator. Where it yields, the debts of the log's directory (`disk.Disk`) and the checkpoint files become
durable: on an event loop while others run (`Log.carry_out`), or at once (`Log.carry_out_now`). In between the log may
have been closed, or another change may have been faster, so the generator looks again after each `yield`.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
