"""EDGE: where a command gets a password from: a file, the environment, or a prompt."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from semel._command_line.common import failure, say

F = TypeVar("F", bound=Callable[..., Any])
VARIABLE = "SEMEL_USER_PASSWORD"
GIVEN, FILE = "password_given", "password_file"


def password_options(command: F) -> F:
    """The options `--password-file` and `--password`; give what they set to `password_of`."""
    command = click.option(
        "--password-file",
        FILE,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file whose first line is the password.",
    )(command)
    return click.option(
        "--password",
        GIVEN,
        metavar="TEXT",
        help="The password itself. Other users of this machine can see it: use --password-file or the prompt.",
    )(command)


def password_of(given: Mapping[str, Any]) -> str:
    """The password from its option, its file, the variable SEMEL_USER_PASSWORD, or a prompt. Raises ClickException."""
    found: str
    if given[GIVEN] is not None:
        say("warning: other users of this machine can see --password; use --password-file or the prompt", err=True)
        found = given[GIVEN]
    elif given[FILE] is not None:
        found = given[FILE].read_text().partition("\n")[0].removesuffix("\r")
    elif VARIABLE in os.environ:
        found = os.environ[VARIABLE]
    else:
        found = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not found:
        raise failure("the password is empty; give one")
    return found
