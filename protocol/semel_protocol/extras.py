"""EDGE: reads how semel is installed, for the command that installs an extra of it.

`pip install 'semel[console]'` asks the package index. An installation from a checkout, an archive or a repository has
to be completed from there: the index may have another version, or none. PEP 610 keeps the source in `direct_url.json`.
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "semel"


def missing(user: str, package: str, *extras: str) -> str:
    """The message for a package that is not installed. `user`: what needs it. `extras`: those that bring it."""
    return f"{user} needs the package {package!r}, which is not installed. Install it: {install_command(*extras)}"


def install_command(*extras: str) -> str:
    """The command that installs the extras from where this installation came from."""
    try:
        text = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:  # Python finds the modules by a path
        checkout = Path(__file__).resolve().parents[2]
        source = {"url": checkout.as_uri(), "dir_info": {"editable": True}} if _is_checkout(checkout) else {}
        return command_for(source, extras)
    source = json.loads(text) if text else {}
    folder = _folder(source)
    if folder is not None and not _is_checkout(folder):
        return f"in a checkout of semel: {command_for({'url': 'file:.', 'dir_info': source['dir_info']}, extras)}"
    return command_for(source, extras)


def command_for(source: dict[str, Any], extras: tuple[str, ...]) -> str:
    """PURE. The command for an installation from `source`: what `direct_url.json` has; empty: the package index."""
    of_extras = f"[{','.join(extras)}]"
    folder = _folder(source)
    if folder is not None:
        option = "-e " if source["dir_info"].get("editable") else ""
        return f"pip install {option}{shlex.quote(f'{folder}{of_extras}')}"
    wanted = f"{NAME}{of_extras}"
    if "vcs_info" in source:
        vcs = source["vcs_info"]
        wanted += f" @ {vcs['vcs']}+{source['url']}@{vcs['commit_id']}"
    elif "url" in source:
        wanted += f" @ {source['url']}"
    return f"pip install {shlex.quote(wanted)}"


def _folder(source: dict[str, Any]) -> Path | None:
    """The folder that was installed from; None: it was no folder."""
    return Path(unquote(urlsplit(source["url"]).path)) if "dir_info" in source else None


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "protocol").is_dir()
