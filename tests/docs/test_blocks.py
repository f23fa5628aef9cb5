"""Every block of every page: commands and options exist, programs compile, imports are there.

test_pages runs the blocks of README.md and docs/*.md. Those that it does not run, and those of other folders, are
checked here as far as that is possible without running them.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs.blocks import ROOT
from semel.cli.main import main

BLOCK = re.compile(r"^```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "tools/*/*.md")
    for path in ROOT.glob(pattern)
)
OWN_PACKAGES = (
    "semel",
    "semel_broker",
    "semel_console",
    "semel_protocol",
    "semel_storage",
    "pyspark_semel",
    "tools",
    "demo",
)
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))


def blocks(page: str, *languages: str) -> Iterator[str]:
    """The blocks of a page in these languages."""
    for found in BLOCK.finditer((ROOT / page).read_text()):
        if found["language"] in languages:
            yield found["text"]


def command_lines(page: str) -> Iterator[list[str]]:
    """The words of each command in the blocks for shells, pipelines and lists split."""
    for text in blocks(page, "console", "sh", "shell", "bash", ""):
        for line in text.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+# .*", "", line.removeprefix("$ ")).strip()
            for part in re.split(r"\|\||&&|[|;&]", command):
                try:
                    words = shlex.split(re.sub(r"\s[<>]+ ?\S+", "", part))
                except ValueError:
                    continue  # the quotation continues in another line
                if words:
                    yield words


def check_semel(words: list[str]) -> None:
    """Parse the arguments as the command does, without running it. Raises click.UsageError."""
    context = click.Context(main, info_name="semel")
    command: click.Command = main
    rest = words[1:]
    while isinstance(command, click.Group):
        context = command.make_context(context.info_name, rest, parent=context, ignore_unknown_options=False)
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
    try:
        command.make_context(command.name, rest, parent=context)
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # a file of the reader's
            raise


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    for words in command_lines(page):
        match words:
            case ["semel", *rest] if not {"…", "|", "[-d]"} & set(rest) and not any(
                each.isupper() for each in rest[:2]
            ):
                try:
                    check_semel(words)
                except click.UsageError as error:
                    pytest.fail(f"{page}: {' '.join(words)}: {error.format_message()}")
            case ["make", target, *_] if "=" not in target:
                assert target in TARGETS, f"{page}: make {target}"
            case ["python", "-m", module, *_] if module.split(".")[0] in OWN_PACKAGES:
                assert importlib.util.find_spec(module) is not None, f"{page}: python -m {module}"


@pytest.mark.parametrize("page", PAGES)
def test_programs_compile_and_import_what_is_there(page: str) -> None:
    for text in blocks(page, "python"):
        tree = compile(text, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OWN_PACKAGES:
                module = importlib.import_module(node.module or "")
                for each in node.names:
                    is_there = hasattr(module, each.name) or importlib.util.find_spec(f"{node.module}.{each.name}")
                    assert is_there, f"{page}: from {node.module} import {each.name}"
            elif isinstance(node, ast.Import):
                for each in node.names:
                    if each.name.split(".")[0] in OWN_PACKAGES:
                        importlib.import_module(each.name)


@pytest.mark.parametrize("page", PAGES)
def test_settings_in_toml_are_toml(page: str) -> None:
    for text in blocks(page, "toml"):
        tomllib.loads(text)


def test_a_stale_command_is_found() -> None:
    for stale in ("semel topic lst", "semel topic list --jason", "semel consume", "semel produce t --linger-ms x"):
        with pytest.raises(click.UsageError):
            check_semel(stale.split())
    check_semel(["semel", "consume", "t", "-o", "-5", "--json"])


def test_the_pages_are_where_they_were_looked_for() -> None:
    assert {"README.md", "docs/spark.md", "docs/decisions/README.md", "examples/README.md"} <= set(PAGES)
    assert sum(1 for page in PAGES for words in command_lines(page) if words[0] == "semel") > 40
    assert Path(ROOT / "Makefile").exists()
