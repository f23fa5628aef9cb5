"""kcat, where it is installed: an old librdkafka that enables features only if very old versions are advertised."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from support.processes import BrokerProcess
from support.strangers import CODECS, ConfluentStranger

KCAT = shutil.which("kcat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed on this machine (Debian package: kcat)")


def kcat(broker: BrokerProcess, *arguments: str, text: str = "") -> str:
    command = [str(KCAT), "-b", broker.address, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_lists_the_cluster(broker: BrokerProcess, topic: str) -> None:
    ConfluentStranger(broker.address).create_topic(topic, 3)
    metadata = json.loads(kcat(broker, "-L", "-J"))
    (found,) = [t for t in metadata["topics"] if t["topic"] == topic]
    assert len(found["partitions"]) == 3
    assert metadata["brokers"][0]["name"] == broker.address


@pytest.mark.parametrize("codec", CODECS)
def test_it_writes_idempotently_and_reads_back(broker: BrokerProcess, topic: str, codec: str) -> None:
    ConfluentStranger(broker.address).create_topic(topic, 1)
    lines = [f"line-{i} " + "x" * 80 for i in range(2_000)]
    kcat(broker, "-P", "-t", topic, "-z", codec, "-X", "enable.idempotence=true", text="\n".join(lines))
    assert kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q").splitlines() == lines


def test_it_reads_in_a_group(broker: BrokerProcess, topic: str) -> None:
    ConfluentStranger(broker.address).create_topic(topic, 2)
    ConfluentStranger(broker.address).produce(topic, [(i % 2, None, b"%d" % i) for i in range(50)])
    out = kcat(broker, "-G", f"group-{topic}", "-X", "auto.offset.reset=earliest", "-c", "50", "-q", topic)
    assert sorted(map(int, out.split())) == list(range(50))


def test_it_finds_offsets_by_time(broker: BrokerProcess, topic: str) -> None:
    ConfluentStranger(broker.address).create_topic(topic, 1)
    ConfluentStranger(broker.address).produce(topic, [(0, None, b"a")])
    assert f"{topic} [0] offset 0" in kcat(broker, "-Q", "-t", f"{topic}:0:1")
