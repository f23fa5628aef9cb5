"""docs/frameworks.md: its programs are typed, and do what the page says."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from docs.blocks import ROOT, blocks_of_page
from semel.cli.main import main
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time
PROGRAMS = [each for each in blocks_of_page("docs/frameworks.md") if each.language == "python"]
TITLED = {each.title: each.text for each in PROGRAMS if each.title}
CELLS = [each.text for each in PROGRAMS if "await producer." in each.text and not each.title]
TEST = next(each.text for each in PROGRAMS if "TestClient" in each.text)
WITHIN_S = 60
STREAM = """
import asyncio
from semel import Consumer, Producer
from stream import app

async def main() -> None:
    running = asyncio.create_task(app.run())
    async with (
        Producer(bootstrap_servers="localhost:9092") as producer,
        Consumer("invoices", bootstrap_servers="localhost:9092", auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait("orders", b'{"item": "tea", "count": 2}')
        print((await consumer.getone()).value.decode())
    app.exit()
    await running

asyncio.run(main())
"""


def written(folder: Path, title: str, broker: EphemeralBroker) -> Path:
    file = folder / title
    file.write_text(TITLED[title].replace("localhost:9092", broker.bootstrap_servers))
    return file


@pytest.fixture
def shop(semel_broker: EphemeralBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program of FastAPI as a module."""
    written(tmp_path, "shop.py", semel_broker)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return importlib.import_module("shop")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_fastapi_stores_orders_counts_them_and_leaves_its_group(shop: Any, semel_broker: EphemeralBroker) -> None:
    from fastapi.testclient import TestClient

    with TestClient(shop.app) as client:
        answer = client.post("/orders", json={"item": "tea", "count": 2})
        assert (answer.status_code, answer.json()["offset"]) == (202, 0)
        client.post("/orders", json={"item": "tea"})
        until(lambda: client.get("/sold").json() == {"tea": 3})
    described = CliRunner().invoke(main, ["group", "describe", "shop", "-b", semel_broker.bootstrap_servers])
    assert "shop: Empty, 0 members" in described.stdout


def test_the_test_of_the_page_passes(shop: Any, semel_broker: EphemeralBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(compile(TEST, "page", "exec"), names)
    names["test_an_order_is_stored"](semel_broker, monkeypatch)


def test_faststream_bills_an_order(semel_broker: EphemeralBroker, tmp_path: Path) -> None:
    written(tmp_path, "stream.py", semel_broker)
    driver = STREAM.replace("localhost:9092", semel_broker.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-c", driver], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '{"item":"tea","price":10}' in done.stdout.splitlines()


async def test_cells_of_a_notebook_run_one_after_the_other(semel_broker: EphemeralBroker) -> None:
    """Compiled as IPython compiles a cell with `await`."""
    names: dict[str, Any] = {}
    assert len(CELLS) == 2
    for cell in CELLS:
        text = cell.replace("localhost:9092", semel_broker.bootstrap_servers)
        code = compile(text, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if inspect.iscoroutine(running := eval(code, names)):
            await running
    sleep = asyncio.sleep(0)
    with pytest.raises(RuntimeError) as refused:
        asyncio.run(sleep)
    await sleep
    assert f"`RuntimeError: {refused.value}`" in (ROOT / "docs/frameworks.md").read_text()


@pytest.mark.slow
def test_the_programs_are_typed(tmp_path: Path) -> None:
    for title, text in TITLED.items():
        (tmp_path / title).write_text(text)
    (tmp_path / "cells.py").write_text("\n".join(CELLS))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--disable-error-code=top-level-await",
        *sorted(TITLED),
        "cells.py",
    ]
    where = ":".join(str(ROOT / each) for each in ("client", "protocol"))
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache")],
        cwd=tmp_path,
        env={"MYPYPATH": where, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
