"""PURE: what is written but not synced, to be synced by a thread together with a file of the same directory.

The debts of a file are those of its directory and of all directories above it. One that is added again while a thread
pays it stays: that thread may have begun before the change.
"""

from collections.abc import Iterable

import msgspec


class Debt(msgspec.Struct, frozen=True):
    """The bytes of a file, or the names in a directory. `number` tells two debts of one path apart."""

    path: str
    is_directory: bool
    number: int


class Debts:
    """By directory, in the order to pay them: files before names, a directory before the one above it."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Debt]] = {}
        self._names: dict[str, Debt] = {}
        self._number = 0

    def add_file(self, path: str) -> None:
        """The bytes of this file are not durable."""
        self._number += 1
        self._files.setdefault(directory_of(path), {})[path] = Debt(path, False, self._number)

    def add_names(self, directory: str) -> None:
        """The names in this directory are not durable."""
        self._number += 1
        self._names[directory] = Debt(directory, True, self._number)

    def of(self, path: str) -> list[Debt]:
        """The names that must be durable before the bytes of this file count as durable."""
        if not self._files and not self._names:
            return []
        found: list[Debt] = []
        directory = directory_of(path)
        while directory:
            found += self._files.get(directory, {}).values()
            if names := self._names.get(directory):
                found.append(names)
            directory = directory_of(directory)
        return found

    def has_names(self, directory: str) -> bool:
        """Whether names in this very directory are not durable."""
        return directory in self._names

    def paid(self, debts: Iterable[Debt]) -> None:
        """These are durable. One that was added again is another debt."""
        for debt in debts:
            if debt.is_directory:
                if self._names.get(debt.path) is debt:
                    del self._names[debt.path]
                continue
            directory = directory_of(debt.path)
            files = self._files.get(directory, {})
            if files.get(debt.path) is debt:
                del files[debt.path]
                if not files:
                    del self._files[directory]

    def forget(self, directory: str) -> None:
        """The directory is removed or renamed with all that is in it."""
        self._files.pop(directory, None)
        self._names.pop(directory, None)


def directory_of(path: str) -> str:
    """The directory that a path lies in; empty above the topmost one."""
    return path.rpartition("/")[0]
