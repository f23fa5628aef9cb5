"""Output into a pipe whose reader has gone, as in `semel top | head`: the command ends without an error."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import click
import pytest
from semel._command_line.common import run, say, tell
from semel.cli.main import Commands


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("put", [say, tell], ids=["click", "rich"])
def test_a_command_ends_with_status_0(put: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    @click.group(cls=Commands)
    def commands() -> None: ...

    @click.command("put")
    def command() -> None:
        async def main() -> None:
            put("line")

        run(main())

    monkeypatch.setattr(Commands, "get_command", lambda *_: command)
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit) as ended:
        commands(["put"])
    assert ended.value.code == 0
    assert said.closed, "Python says nothing when it ends"
