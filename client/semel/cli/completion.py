"""`semel completion`: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from semel._command_line.common import failure, say

PROGRAM = "semel"
VARIABLE = "_SEMEL_COMPLETE"
"""The environment variable by which the script asks the program for completions (click's convention)."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash: eval "$(semel completion bash)" in ~/.bashrc (bash 4.4 or newer)
    zsh:  eval "$(semel completion zsh)" in ~/.zshrc, after compinit
    fish: semel completion fish > ~/.config/fish/completions/semel.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise failure(f"click has no completion for {shell}")
    say(*found(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source().splitlines())
