"""Spark reads and writes with SCRAM over TLS. Passwords are in no output, event log, plan or checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline.drivers import environment
from semel import Consumer
from semel_broker.testing.in_process import EphemeralBroker

ROWS = 200
WRONG = "a-wrong-password"
DETAILED = """
logger.spark.name = org.apache.spark
logger.spark.level = info
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""
PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_semel import prepare

folder = Path(sys.argv[1])
given = json.loads((folder / "options.json").read_text())
right, wrong, rows = given["right"], given["wrong"], given["rows"]
prepare()
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", False)
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.local.dir", str(folder / "local"))
    .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}")
    .config("spark.eventLog.enabled", True)
    .config("spark.eventLog.dir", (folder / "events").as_uri())
    .config("spark.eventLog.compress", False)
    .getOrCreate()
)
numbers = spark.range(rows).selectExpr("CAST(id AS STRING) AS value")
numbers.write.format("semel").mode("append").options(**right, topic="numbers").save()

stream = spark.readStream.format("semel").options(**right, subscribe="numbers", startingOffsets="earliest").load()
query = (
    stream.selectExpr("CAST(value AS STRING) AS value")
    .writeStream.format("semel")
    .options(**right, topic="copies", checkpointLocation=str(folder / "checkpoint"), **{"semel.sink.id": "copies"})
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
query.explain(True)
print(query.lastProgress)

copies = spark.read.format("semel").options(**right, subscribe="copies").load()
copies.explain(True)
print("read:", copies.select("value").distinct().count())
for name, act in {
    "read": lambda: spark.read.format("semel").options(**wrong, subscribe="copies").load().count(),
    "write": lambda: numbers.write.format("semel").mode("append").options(**wrong, topic="copies").save(),
}.items():
    try:
        act()
    except Exception as error:
        print(f"refused {name}:", error, getattr(error, "getMessage", str)())
spark.stop()
"""


def spark_options(broker: EphemeralBroker, password: str) -> dict[str, str]:
    settings = broker.client_settings()
    login = f'username="{settings["sasl_plain_username"]}" password="{password}"'
    return {
        "kafka.bootstrap.servers": settings["bootstrap_servers"],
        "kafka.security.protocol": settings["security_protocol"],
        "kafka.ssl.truststore.location": settings["ssl_cafile"],
        "kafka.sasl.mechanism": settings["sasl_mechanism"],
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
    }


@pytest.mark.proves("secrets-shown")
@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.real_time
@pytest.mark.semel(security="scram+tls")
async def test_a_stream_reads_and_writes_with_scram_over_tls_and_shows_no_password(
    semel_broker: EphemeralBroker, tmp_path: Path
) -> None:
    settings = semel_broker.client_settings()
    password = settings["sasl_plain_password"]
    for topic in ("numbers", "copies"):
        semel_broker.create_topic(topic, 2)
    options = {
        "right": spark_options(semel_broker, password),
        "wrong": spark_options(semel_broker, WRONG),
        "rows": ROWS,
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    (tmp_path / "log4j2.properties").write_text(DETAILED)
    (tmp_path / "events").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-5000:]
    assert f"read: {ROWS}" in done.stdout
    for name in ("read", "write"):
        (refused,) = [part for part in done.stdout.split("refused ")[1:] if part.startswith(name)]
        assert "SASL_AUTHENTICATION_FAILED" in refused, refused
    async with Consumer("copies", **settings, auto_offset_reset="earliest", isolation_level="read_committed") as copies:
        values = [(await copies.getone()).value for _ in range(ROWS)]
    assert sorted(values) == sorted(b"%d" % number for number in range(ROWS))

    assert "INFO org.apache.spark" in done.stderr, "the log has to be a detailed one"
    seen = {"the output": output, "the broker's log": "\n".join(semel_broker.log)}
    (tmp_path / "options.json").unlink()
    seen |= {str(file): file.read_bytes().decode(errors="replace") for file in tmp_path.rglob("*") if file.is_file()}
    assert any("events" in name for name in seen)
    assert any("checkpoint" in name for name in seen)
    assert [name for name, text in seen.items() if password in text or WRONG in text] == []
