"""The quick start of README.md, typed from top to bottom."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
QUICK_START = README[README.index("## Quick start") : README.index("## Two commands")]


def block(language: str) -> str:
    """The quick start's only block of this language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", QUICK_START, re.DOTALL)
    assert isinstance(found, str)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_the_quick_start_prints_what_it_says(tmp_path: Path) -> None:
    """The commands are those of this environment, and the port is a free one instead of 9092."""
    address = f"localhost:{free_port()}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    mine = {"PATH": path, "SEMEL_PORT": address.partition(":")[2], "SEMEL_BOOTSTRAP_SERVER": address}
    lines = block("console").splitlines()
    commands = [line.removeprefix("$ ").split(" # ")[0].strip() for line in lines if line.startswith("$ ")]
    promised = [line for line in lines if not line.startswith("$ ")]
    assert commands[0].startswith("pip install")  # this environment is installed already
    there = f"bootstrap_servers='{address}', "
    program = block("python").replace("transactional_id=", f"{there}transactional_id=")
    (tmp_path / "quick.py").write_text(program.replace("group_id=", f"{there}group_id="))
    script = "\n".join([*commands[1:], "python quick.py", "kill %1", "wait"])
    with subprocess.Popen(
        ["bash", "-m", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **mine},
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        try:
            out, _ = running.communicate(timeout=60)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    printed = [line for line in out.splitlines() if line in promised or line.startswith("departures ")]
    assert printed == [*promised, "departures 0 0 b'UA 1545'"], out


def test_each_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for page in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("strangers/*.md"),
    ]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http://", "https://", "mailto:")) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken
