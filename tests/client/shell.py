"""Runs the `semel` command inside the test process, with the arguments that a user types."""

from __future__ import annotations

from click.testing import CliRunner, Result
from semel.cli.main import main
from support.against import OutsideBroker
from support.processes import BrokerProcess


class Shell:
    """Runs commands against the broker. `shell("topic", "list")` returns the output; the command has to succeed."""

    def __init__(self, broker: BrokerProcess | OutsideBroker) -> None:
        self.address = broker.address
        self.environment = {"SEMEL_BOOTSTRAP_SERVER": broker.address}

    def run(self, *arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=text, env=self.environment)

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        done = self.run(*arguments, text=text)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    def fails(self, *arguments: str, text: str | None = None) -> str:
        """Run a command that has to fail. Returns its output, which must not contain a traceback."""
        done = self.run(*arguments, text=text)
        assert done.exit_code != 0, done.output
        assert isinstance(done.exception, SystemExit), done.exception
        return done.output
