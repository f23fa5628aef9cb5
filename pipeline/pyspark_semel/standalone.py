"""EDGE: starts Spark's standalone cluster from the pip package: `python -m pyspark_semel.standalone master`, `… worker
URL`.

Each command becomes Spark's own process. It adds a Java, the Python of the workers, and an address to listen on. Each
machine that runs tasks needs this package; all of them need one shared folder for checkpoints (docs/cluster.md).
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from pathlib import Path

import click
from semel_protocol import extras

from pyspark_semel import java

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CHECK_TIMEOUT_S = 2.0
NO_REST = "-Dspark.master.rest.enabled=false"
"""Disables the REST submission server, which listens on port 6066."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Start a master or a worker of a Spark standalone cluster; it has Spark's exit status."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on and to advertise.")
@click.option("--port", default=7077, show_default=True)
@click.option("--web-port", default=8080, show_default=True, help="The port of its web page; 0: any free port.")
def master(host: str, port: int, web_port: int) -> None:
    """Start the master, which assigns workers to applications."""
    _exec_spark(MASTER, host, ["--port", str(port), "--webui-port", str(web_port)])


@main.command()
@click.argument("master_url")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on and to advertise.")
@click.option("--port", default=0, help="The port to listen on; 0, the default: any free port.")
@click.option("--web-port", default=0, help="The port of its web page; 0, the default: any free port.")
@click.option("--cores", default=1, show_default=True, help="The number of concurrent tasks.")
@click.option("--memory", default="1g", show_default=True, help="The memory of all executors together.")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path("spark-work"), show_default=True,
    help="The folder of the executors' logs.",
)  # fmt: skip
def worker(master_url: str, host: str, port: int, web_port: int, cores: int, memory: str, folder: Path) -> None:
    """Start a worker of the master at MASTER_URL (spark://host:port)."""
    words = ["--port", str(port), "--webui-port", str(web_port), "--cores", str(cores), "--memory", memory]
    _exec_spark(WORKER, host, [*words, "--work-dir", str(folder.absolute()), master_url])


@main.command()
@click.argument("address")
def check(address: str) -> None:
    """Check that a process listens at ADDRESS (host:port, or spark://host:port): exit status 0 or 1."""
    host, _, port = address.removeprefix("spark://").rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"{address!r} is not an address; write host:port")
    try:
        socket.create_connection((host, int(port)), CHECK_TIMEOUT_S).close()
    except OSError as error:
        raise click.ClickException(f"{address}: {error}") from None


def spark_home() -> Path:
    """Return the folder of the package pyspark, which is a complete Spark. Raises ClickException."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise click.ClickException(extras.missing("This command", "pyspark", "spark"))
    return Path(package.origin).parent


def _exec_spark(name: str, host: str, words: list[str]) -> None:
    home = spark_home()
    try:
        java.prepare()
    except java.NoJavaError as error:
        raise click.ClickException(str(error)) from None
    environ = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host}
    environ["SPARK_MASTER_OPTS"] = f"{NO_REST} {os.environ.get('SPARK_MASTER_OPTS', '')}".strip()
    program = home / "bin" / "spark-class"
    sys.stdout.flush()
    os.execve(program, [str(program), name, "--host", host, *words], environ)  # noqa: S606


if __name__ == "__main__":
    main(prog_name="python -m pyspark_semel.standalone")
