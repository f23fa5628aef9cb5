"""The state that each page presumes: a broker, topics, names in its programs. One table, by page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
SERVERS = 'bootstrap_servers="localhost:9092"'
SERVE = "semel serve --data-dir data --set group.initial.rebalance.delay.ms=0 > semel.log &\n"

FLIGHT = "1,2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
SPARK = """
from pyspark.sql import SparkSession
from pyspark_semel import prepare

prepare()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
"""
WRITE_TEST_ORDERS = f"""python - <<'EOF'
from pathlib import Path
page = Path({str(TESTS)!r}, "../docs/testing.md").read_text()
Path("tests").mkdir()
Path("tests/test_orders.py").write_text(page.partition("```python\\n")[2].partition("```")[0])
Path("pytest.ini").write_text("[pytest]\\nasyncio_mode = auto\\nasyncio_default_fixture_loop_scope = function\\n")
EOF
"""
"""The first test of the page, as a file."""
ENDED = """
for each_query in spark.streams.active:
    each_query.processAllAvailable()
    each_query.stop()
"""
SHOP = """python - <<'EOF'
import asyncio
from semel import Producer

async def main():
    async with Producer(bootstrap_servers="localhost:9092", transactional_id="shop") as producer:
        async with producer.transaction():
            await producer.send("invoices", b"teapot")

asyncio.run(main())
EOF
"""
"""A producer with the transactional id shop."""
DAMAGED = """
import sys
from semel import Consumer, Producer
from semel.serializers import IntegerDeserializer

class EndsAfterTwo(Consumer):
    async def getone(self):
        record = await super().getone()
        assert record.offset == 1
        await dead_letters.stop()
        await self.stop()
        sys.exit(0)

dead_letters = Producer(bootstrap_servers="localhost:9092")
await dead_letters.start()
await dead_letters.send_and_wait("damaged", b"no number")
await dead_letters.send_and_wait("damaged", bytes(4))
consumer = EndsAfterTwo(
    "damaged",
    bootstrap_servers="localhost:9092",
    value_deserializer=IntegerDeserializer(),
    auto_offset_reset="earliest",
)
await consumer.start()
"""
REGISTRY = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from client.registry.fake_registry import FakeRegistry
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

fake = await FakeRegistry().__aenter__()
"""
ORDER = """
import msgspec
from semel import Consumer, Producer, TopicPartition

class Order(msgspec.Struct):
    item: str
    count: int
"""
PROTOBUF = """
import client.registry.messages as orders_pb2

registry = AsyncSchemaRegistryClient({"url": fake.url})
"""
READ_ORDER = """
async with consumer:
    await consumer.seek_to_beginning(TopicPartition("orders", 0))
    consumer.seek(TopicPartition("orders", 0), 1)
    assert (await consumer.getone()).value == Order("teapot", 2)
"""
ORDERS_TABLE = f"""
import msgspec
from semel import BatchReader
from semel.serializers import JsonDeserializer

class Order(msgspec.Struct):
    item: str
    count: int = 1

async with BatchReader({SERVERS}) as reader:
    orders = await reader.to_arrow("orders", value_deserializer=JsonDeserializer(Order))
"""


@dataclass(frozen=True)
class Presumed:
    """
    first, last: commands before and after the page, in its shell. All have to end with status 0.
    replace: texts of the page, and what is typed instead. `{at}` is the folder.
    around: a text that a Python block contains; code before it and after it. The code after it may check the result.
    endless: the first words of a command that does not end, and a command that waits until it works.
    one_program: the Python blocks of the page are one program.
    tens: beginnings of ports, without their last digit: the page may use all ten ports of each.
    needs_program: a program without which the page is skipped.
    needs_extras: more than the extra `broker` is installed.
    thorough: takes more than a few seconds: not in `make test`.
    """

    first: str = SERVE
    last: str = ""
    replace: dict[str, str] = field(default_factory=dict)
    around: dict[str, tuple[str, str]] = field(default_factory=dict)
    endless: dict[str, str] = field(default_factory=dict)
    one_program: bool = False
    tens: tuple[str, ...] = ()
    needs_program: str = ""
    needs_extras: bool = False
    thorough: bool = True


PRESUMED = {
    "README.md": Presumed(first="", thorough=False),
    "docs/getting-started.md": Presumed(first=""),
    "docs/transactions.md": Presumed(first=""),
    "docs/authorization.md": Presumed(
        first=SERVE.replace(
            " >",
            " --set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            " --set super.users=User:ANONYMOUS >",
        ),
        last="test $(semel acl list | wc -l) -gt 3\n",
    ),
    "docs/commands.md": Presumed(
        first=SERVE.replace(" >", " --set node.id=1 >")
        + "semel topic create flights --partitions 2\n"
        + "seq 2000 | semel produce flights --partition 0\n"
        + "mkdir -p ~/.config/fish/completions\n",
        replace={
            "kafka-1:9092,kafka-2:9092": "localhost:9092",
            'eval "$(semel completion zsh)"': "semel completion zsh | grep compdef > /dev/null",
        },
        last="test -s ~/.config/fish/completions/semel.fish\n",
    ),
    "docs/dataframes.md": Presumed(
        first=SERVE
        + "semel topic create orders\n"
        + """printf '{"item":"tea","count":2}\\n{"item":"cup"}\\n{"item":"tea"}\\n' | semel produce orders\n""",
        around={
            "flatten()": (ORDERS_TABLE, "assert frame.groupby('value.item')['value.count'].sum()['tea'] == 3\n"),
            "unnest": (ORDERS_TABLE, "assert frame['count'].sum() == 4\n"),
            "import duckdb": (ORDERS_TABLE, ""),
            "timedelta(days=1)": ("", "assert (today.num_rows, first.num_rows) == (3, 2)\n"),
            "pc.sum": ("", "assert size == 52\n"),
            "new = await": ("", "assert new.num_rows == 3\n"),
        },
        needs_extras=True,
    ),
    "docs/locked-cluster.md": Presumed(
        first="unset SEMEL_BOOTSTRAP_SERVER SEMEL_CONFIG_FILE SEMEL_PORT\n",
        last="! cat *.log etcd.out /proc/[0-9]*/cmdline 2> /dev/null | grep -aqFf <(cat *.password)\n"
        "! find tls *.password [ab]*.properties *.log data-* etcd-data -type f -perm /077 | grep .\n",
        tens=("1237", "1238", "1909", "1919"),
        needs_program="etcd",
        needs_extras=True,
    ),
    "docs/moving-from-aiokafka.md": Presumed(
        first="",
        replace={"from faststream.kafka import KafkaBroker": "import aiokafka; assert aiokafka is semel.aiokafka"},
    ),
    "docs/operating.md": Presumed(
        first=SERVE + "semel topic create orders\necho kettle | semel produce orders\n"
        "semel consume orders --group billing --from-beginning --max-records 1\n",
    ),
    "docs/settings.md": Presumed(first=SERVE + "semel topic create orders\n"),
    "docs/pipelines.md": Presumed(
        first=SERVE
        + "semel topic create flights\n"
        + "semel topic create flights-enriched\n"
        + f"echo '{FLIGHT}' | semel produce flights\n",
        replace={"/var/lib/flights": "{at}/checkpoint"},
        endless={
            "semel pipeline run": "timeout 150 semel consume flights-enriched --from-beginning --max-records 1"
            " --isolation read_committed"
        },
        needs_extras=True,
    ),
    "docs/serializers.md": Presumed(
        replace={
            "Producer(key_": f"Producer({SERVERS}, key_",
            "Producer(value_": f"Producer({SERVERS}, value_",
            '        "orders",\n': f'        "orders", {SERVERS},\n',
            'Consumer("orders"': f'Consumer("orders", {SERVERS}',
            '"http://localhost:8081"': "fake.url",
        },
        around={
            "await dead_letters": (DAMAGED, ""),
            "registry.avro": (f"{REGISTRY}{ORDER}", READ_ORDER),
            "registry.protobuf": (
                f"{REGISTRY}{PROTOBUF}",
                "assert deserializer(serializer(orders_pb2.Order(count=2))).count == 2\n",
            ),
        },
        last="semel consume orders-dead --from-beginning --exit-at-end | grep -q 'no number'\n",
        needs_extras=True,
    ),
    "docs/replace-testcontainers.md": Presumed(
        first="printf '[pytest]\\n' > pytest.ini\n",
        replace={
            "pip install '.[broker]'": "python -c 'import semel_broker'",
            "pytest -q tests": "python -m pytest -q -p no:cacheprovider tests",
        },
        needs_extras=True,
    ),
    "docs/spark-clusters.md": Presumed(
        first="",
        around={"SemelDataSource": (SPARK, "spark.read.format('semel')\n")},
        needs_extras=True,
    ),
    "docs/spark.md": Presumed(
        first=SERVE + "semel topic create flights\n",
        replace={"/var/lib/delays": "{at}/checkpoint"},
        around={
            '.format("semel")  # it was "kafka"': (SPARK, ""),
            'rows.write.format("semel")': ("rows = spark.createDataFrame([('EWR', 'late')], ['key', 'value'])\n", ""),
            "ScramLoginModule": ("", "spark.read.format('semel').options(**options)\n"),
            "import lag": (
                """
                started = flights.writeStream.format("noop").option("checkpointLocation", "{at}/noop")
                query = started.trigger(availableNow=True).start()
                query.awaitTermination()
                """,
                "assert list(lag(query.lastProgress['sources'][0]).values()) == [0]\n",
            ),
            "rows.selectExpr": (
                """
                rows = spark.readStream.format("semel").option("kafka.bootstrap.servers", "localhost:9092")
                rows = rows.option("subscribe", "flights").option("startingOffsets", "earliest").load()
                stream = rows.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
                rows = rows.selectExpr("CAST(key AS STRING) AS airport", "timestamp")
                """,
                ENDED,
            ),
            "import write_batch": ("import shutil\nshutil.rmtree('{at}/checkpoint')\n", ENDED),
        },
        last="semel consume delays --from-beginning --isolation read_committed --exit-at-end | sort | tr -d '\\n'"
        """ | grep '^1{"airport":"EWR","timestamp":"[^"]*"}$'\n""",
        one_program=True,
        needs_extras=True,
    ),
    "docs/testing.md": Presumed(
        first=WRITE_TEST_ORDERS,
        replace={
            "pytest --semel-keep": "python -m pytest -p no:cacheprovider --basetemp=kept --semel-keep",
            "=================== semel: data kept ===================": "...= semel: data kept =...",
            "/tmp/pytest-of-me/pytest-7": "{at}/kept",
        },
        endless={"semel serve --data-dir": "semel topic describe orders"},
        needs_extras=True,
    ),
    "docs/with-apache-kafka.md": Presumed(
        first=SERVE + "semel topic create orders\necho kettle | semel produce orders\n"
        "semel consume orders --group billing --from-beginning --max-records 1\n" + SHOP,
        replace={"kafka.example.com:9092": "localhost:9092"},
    ),
}
