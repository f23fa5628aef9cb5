"""EDGE: the script `semel`: ends without a traceback on Ctrl-C, also while Python imports the client, and when its
output cannot be written.

It is a package of its own, because importing anything of `semel` imports the whole client.
"""

import errno
import os
import sys
from io import TextIOWrapper

INTERRUPTED = 130
"""The exit status after Ctrl-C, as of a process that SIGINT has ended."""
UNWRITABLE = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a closed or full output."""
SERVERS = ("serve", "console")
"""Commands that may run without an output: a supervisor has closed it."""
PRINTING_OPTIONS = ("--settings", "--help", "-h")
"""With them a server prints, and ends."""


def main() -> None:
    """Run the command that the arguments name."""
    status: object = 1
    try:
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # file names need not be UTF-8, nor does a terminal
        from semel.cli.main import main as command

        command(prog_name="semel")
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        _complain(error)
    sys.exit(_flushed(status))


def _open_closed_streams() -> None:
    """Put the null device in place of closed standard streams (`semel … >&-`), so that no socket gets their numbers.

    Reading of a closed input and writing to a closed output fail with EBADF. What is said on a closed standard error is
    lost.
    """
    modes = (os.O_WRONLY, os.O_WRONLY if _is_server(sys.argv[1:]) else os.O_RDONLY, os.O_WRONLY)
    for number, (name, mode) in enumerate(zip(("stdin", "stdout", "stderr"), modes, strict=True)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _is_server(arguments: list[str]) -> bool:
    """Whether the command serves until it is ended."""
    prints = any(argument.split("=")[0] in PRINTING_OPTIONS for argument in arguments)
    return bool(arguments) and arguments[0] in SERVERS and not prints


def _flushed(status: object) -> object:
    """The exit status after the rest of the output is written: 1 if it cannot be."""
    for stream in (sys.stderr, sys.stdout):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError as error:
            if stream is sys.stdout and not status and error.errno != errno.EPIPE:
                _complain(error)
                status = 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python would try again when it ends
    return status


def _complain(error: OSError) -> None:
    try:
        sys.stderr.write(f"Error: cannot write the output: {error.strerror}\n")
        sys.stderr.flush()
    except OSError:
        pass  # standard error cannot be written either
