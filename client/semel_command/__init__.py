"""The script `semel`: ends with status 130, and without a traceback, on Ctrl-C, also while Python imports the client.

It is a package of its own, because importing anything of `semel` imports the whole client.
"""

import sys

INTERRUPTED = 130
"""The exit status after Ctrl-C, as of a process that SIGINT has ended."""


def main() -> None:
    """Runs the command that the arguments name."""
    try:
        from semel.cli.main import main as command

        command(prog_name="semel")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
