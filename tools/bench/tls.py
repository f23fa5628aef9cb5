"""TLS against plaintext: librdkafka on two listeners of one broker in the same run, and memory of idle connections."""

from __future__ import annotations

import socket
import ssl
import statistics
import time
from pathlib import Path

from semel_broker.testing.authority import Authority
from support.processes import BrokerProcess

from tools.bench.figure import Figure, at_most, per_second, ratio
from tools.bench.measure import broker, cpu_s, rss_mib, work

PRODUCE_RATIO = CONSUME_RATIO = 0.6
IDLE_CONNECTIONS = 500
HANDSHAKES = 200


def tls(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure produce and consume by librdkafka over TLS 1.3, as a part of plaintext on the same broker."""
    authority = Authority(directory / "certificates")
    server = authority.issue("server", "127.0.0.1")
    rates: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(server)}
    with broker(directory / "data", **listeners) as process:
        for run in range(runs):
            for listener in ("PLAINTEXT", "SSL"):
                security = {"security.protocol": listener.lower(), "ssl.ca.location": str(authority.ca_file)}
                where = {
                    "address": f"127.0.0.1:{process.ports[listener]}",
                    "records": records,
                    "topic": f"{listener}-{run}",
                    "security": security,
                }
                for name in ("produce", "consume"):
                    before = cpu_s(process)
                    done = work(f"librdkafka_{name}", **where)
                    cpu.setdefault((name, listener), []).append((cpu_s(process) - before) * 1e6 / records)
                    rates.setdefault((name, listener), []).append(done["records_per_s"])
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        handshake_ms = _handshake_ms(process, context)
    memory = []
    for number, each in enumerate((None, context)):  # fresh brokers, without memory from earlier work
        with broker(directory / f"idle-{number}", **listeners) as process:
            memory.append(_kib_per_connection(process, each))
    figures = []
    for name, least in (("produce", PRODUCE_RATIO), ("consume", CONSUME_RATIO)):
        plain, secure = (statistics.median(rates[name, listener]) for listener in ("PLAINTEXT", "SSL"))
        figures += [
            per_second(f"{name} in plaintext, confluent-kafka", plain),
            per_second(f"{name} over TLS, confluent-kafka", secure),
            ratio("  of plaintext", secure / plain, least),
            at_most("  broker CPU per million records, plaintext", statistics.median(cpu[name, "PLAINTEXT"]), "s"),
            at_most("  broker CPU per million records, TLS", statistics.median(cpu[name, "SSL"]), "s"),
        ]
    return [
        *figures,
        at_most("memory of an idle connection in plaintext", memory[0], "KiB", digits=0),
        at_most("memory of an idle connection with TLS", memory[1], "KiB", digits=0),
        at_most("TLS connection, with an ECDSA certificate", handshake_ms, "ms"),
    ]


def _connect(process: BrokerProcess, context: ssl.SSLContext | None) -> socket.socket:
    listener = "PLAINTEXT" if context is None else "SSL"
    plain = socket.create_connection(("127.0.0.1", process.ports[listener]), 10)
    return plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")


def _kib_per_connection(process: BrokerProcess, context: ssl.SSLContext | None) -> float:
    """Memory of the broker for each of many connections that stay silent once they are open."""
    before = rss_mib(process)
    connections = [_connect(process, context) for _ in range(IDLE_CONNECTIONS)]
    time.sleep(0.5)  # the broker finishes with the last ones
    taken = rss_mib(process) - before
    for connection in connections:
        connection.close()
    return taken * 1024 / IDLE_CONNECTIONS


def _handshake_ms(process: BrokerProcess, context: ssl.SSLContext) -> float:
    taken = []
    for _ in range(HANDSHAKES):
        started = time.perf_counter()
        connection = _connect(process, context)
        taken.append((time.perf_counter() - started) * 1000)
        connection.close()
    return statistics.median(taken)
