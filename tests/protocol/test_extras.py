"""The command that installs an extra: it is right for the way in which semel was installed."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from semel_protocol.extras import command_for, install_command, missing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ({}, "pip install 'semel[broker,oauth]'"),
        ({"url": "file:///srv/a%20b", "dir_info": {}}, "pip install '/srv/a b[broker,oauth]'"),
        ({"url": "file:///srv/semel", "dir_info": {"editable": True}}, "pip install -e '/srv/semel[broker,oauth]'"),
        (
            {"url": "file:///tmp/semel-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'semel[broker,oauth] @ file:///tmp/semel-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://host/semel.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'semel[broker,oauth] @ git+https://host/semel.git@abc'",
        ),
    ],
)
def test_the_command_installs_from_where_semel_came_from(source: dict[str, Any], command: str) -> None:
    assert command_for(source, ("broker", "oauth")) == command


def test_in_a_checkout_the_command_names_its_folder() -> None:
    """It is a command that pip understands: an index is not asked for `semel`."""
    *words, requirement = shlex.split(install_command("console"))
    assert words == ["pip", "install", "-e"]
    assert requirement == f"{ROOT}[console]"
    assert missing("`semel console`", "uvicorn", "console").endswith(f"Install it: pip install -e '{ROOT}[console]'")


def test_without_an_installation_the_checkout_of_the_modules_is_named(tmp_path: Path) -> None:
    code = (
        "import importlib.metadata as m, sys; sys.path.insert(0, sys.argv[1]); from semel_protocol import extras\n"
        "def none(name): raise m.PackageNotFoundError(name)\n"
        "extras.distribution = none; print(extras.install_command('check'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "protocol")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"pip install -e '{ROOT}[check]'\n"


def test_a_checkout_that_is_gone_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DistributionOfGoneCheckout:
        def read_text(self, _: str) -> str:
            return '{"url": "file:///gone/semel", "dir_info": {"editable": false}}'

    monkeypatch.setattr("semel_protocol.extras.distribution", lambda _: DistributionOfGoneCheckout())
    assert install_command("check") == "in a checkout of semel: pip install '.[check]'"
