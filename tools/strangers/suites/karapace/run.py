"""EDGE: runs Karapace on the brokers, and serializers of semel and of confluent-kafka against it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from tools.strangers import pip, script

ROOT = Path(__file__).parents[4]
START_S = 120
OF_SEMEL = ["msgspec==0.20.0", "crc32c==2.8", "cramjam==2.11.0", "fastavro==1.12.1", "protobuf==6.33.0"]
TESTS = [
    "avro: semel writes, confluent-kafka reads",
    "avro: confluent-kafka writes, semel reads",
    "avro: both write the same bytes",
    "avro: an incompatible schema is refused",
    "protobuf: semel writes, confluent-kafka reads",
    "protobuf: confluent-kafka writes, semel reads",
    "protobuf: both write the same bytes",
]
AFTERWARDS = "avro: schemas are there after brokers and registry were killed, and new ones can be registered"


class Registry:
    """Karapace as a process."""

    def __init__(self, python: Path, source: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._config = script.scratch() / "karapace.json"
        settings = {
            "advertised_hostname": "127.0.0.1", "host": "127.0.0.1", "port": self.port,
            "bootstrap_uri": script.bootstrap(), "replication_factor": script.replicas(), "topic_name": "_schemas",
            "karapace_registry": True, "karapace_rest": False, "compatibility": "BACKWARD", "log_level": "INFO",
        }  # fmt: skip
        self._config.write_text(json.dumps(settings))
        self._command = [str(python), "-m", "karapace.karapace_all", str(self._config)]
        self._source = source

    def start(self) -> None:
        """Start it and wait until it has read its topic."""
        log = (script.scratch() / "karapace.log").open("ab")
        self._process = subprocess.Popen(self._command, cwd=self._source, stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, "Karapace ended by itself; see karapace.log"
            assert time.monotonic() < end, f"Karapace does not answer within {START_S} s; see karapace.log"
            time.sleep(0.5)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:  # refused, or 503 until it has read its topic
            return False


def copied(checkout: Path, version: str) -> Path:
    """A copy of the package that knows its version, which its build would write."""
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "karapace", source / "karapace")
    (source / "karapace" / "version.py").write_text(f'__version__ = "{version}"\n')
    return source


def requirements(checkout: Path) -> list[str]:
    """Its pinned packages. Its patched avro is not published; the released one reads and writes the same schemas."""
    lines = (checkout / "requirements" / "requirements.txt").read_text().splitlines()
    return [*(line.split()[0] for line in lines if "==" in line and not line.startswith(" ")), "avro==1.12.0"]


def main() -> None:
    version = script.pin("karapace")
    checkout = script.checkout("karapace", version)
    try:
        python = pip.venv(requirements(checkout), script.work() / "karapace-venv")
        client = pip.venv(
            [f"confluent-kafka[schemaregistry,avro,protobuf]=={script.pin('confluent-kafka')}", *OF_SEMEL],
            script.work() / "client-venv",
        )
    except pip.PipUnreachableError:
        raise
    except pip.PipError as error:
        raise script.NothingToRunError(f"its packages do not install: {' '.join(str(error).split())[-200:]}") from error
    registry = Registry(python, copied(checkout, version))
    registry.start()
    paths = f"PYTHONPATH={ROOT / 'protocol'}:{ROOT / 'client'}"
    app = ["env", paths, str(client), str(script.folder() / "app.py"), script.bootstrap(), registry.url]
    try:
        for name in TESTS:
            with script.test(name):
                script.output([*app, name], 120)
        with script.test(AFTERWARDS):
            registry.kill()
            for index in range(script.brokers()):
                script.kill_and_start(index)
            registry.start()
            script.output([*app, AFTERWARDS], 120)
    finally:
        registry.kill()


script.run(main)
