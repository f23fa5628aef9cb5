"""The networks of services: private addresses, replaced host names, and cuts that lose every packet."""

from __future__ import annotations

import pytest

from tools.cluster import compose, namespaces
from tools.cluster.loopback import Loopback, claim
from tools.cluster.places import NotAvailableError, with_hosts_replaced

MEANT = {"store": "127.77.1.2", "store-2": "127.77.1.3", "0.0.0.0": "127.77.1.9", "10.9.0.7": "127.77.1.4"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("store", "127.77.1.2"),
        ("store:9092", "127.77.1.2:9092"),
        ("http://store:2379", "http://127.77.1.2:2379"),
        ("--etcd=http://store:2379,http://store-2:2379", "--etcd=http://127.77.1.2:2379,http://127.77.1.3:2379"),
        ("--host=0.0.0.0", "--host=127.77.1.9"),
        ("http://0.0.0.0:2380", "http://127.77.1.9:2380"),
        ("user@store/path", "user@127.77.1.2/path"),
        ("a=store,b=store", "a=127.77.1.2,b=127.77.1.2"),
        ("curl http://store/ store", "curl http://127.77.1.2/ 127.77.1.2"),
        ("10.9.0.7:1", "127.77.1.4:1"),
        # Words that only look like a host:
        ("/var/lib/store", "/var/lib/store"),
        ("/var/store/data", "/var/store/data"),
        ("store-1", "store-1"),
        ("mystore", "mystore"),
        ("store.example.org", "store.example.org"),
        ("store=http://elsewhere:1", "store=http://elsewhere:1"),
        ("10.0.0.0", "10.0.0.0"),
        ("110.9.0.7", "110.9.0.7"),
    ],
)
def test_hosts_are_put_in_where_a_host_stands(word: str, expected: str) -> None:
    assert with_hosts_replaced(word, MEANT) == expected


PROJECT = """
services:
  one: {image: python, networks: {back: {aliases: [uno]}}}
  two: {image: python, hostname: zwei, networks: {back: {ipv4_address: 10.9.0.2}}}
  three: {image: python}
  outside: {image: python, network_mode: host}
networks: {back: }
"""


async def test_every_service_has_an_address_and_fixed_ones_keep_their_last_number() -> None:
    place = Loopback(compose.parse(PROJECT, {}))
    await place.open()
    try:
        prefix = place.addresses["one"].rpartition(".")[0]
        assert place.addresses == {
            "one": f"{prefix}.3",
            "two": f"{prefix}.2",
            "three": f"{prefix}.4",
            "outside": "127.0.0.1",
        }
        assert prefix.startswith("127.77.")
        assert place.names()["uno"] == place.addresses["one"]
        assert place.names()["zwei"] == place.addresses["two"]
        assert place.text("three", "tcp://10.9.0.2:1 0.0.0.0") == f"tcp://{prefix}.2:1 {prefix}.4"
        assert place.text("outside", "zwei 0.0.0.0") == f"{prefix}.2 0.0.0.0"
    finally:
        await place.close()


LAST = frozenset(range(1, 254))
"""All numbers but the last, which no other test comes to."""


def test_a_number_is_one_project_s_as_long_as_it_lives() -> None:
    number, held = claim(LAST)
    with pytest.raises(NotAvailableError, match="all taken"):
        claim(LAST)
    other, free = claim()
    assert other != number
    free.close()
    held.close()
    again, held = claim(LAST)
    assert again == number
    held.close()


async def test_on_loopback_a_cut_is_refused_with_what_would_help() -> None:
    place = Loopback(compose.parse(PROJECT, {}))
    with pytest.raises(NotAvailableError, match="need network namespaces"):
        await place.cut("one", "two")


async def test_the_network_of_a_killed_runner_is_removed(can_have_namespaces: bool) -> None:
    if not can_have_namespaces:
        pytest.skip("network namespaces cannot be made here")
    number, held = claim(LAST)
    await namespaces.ip([f"netns add semel{number}-left", f"link add semel{number} type bridge"])
    await namespaces.ip([f"link add semel{number}x0 type veth peer name eth0 netns semel{number}-left"])
    await namespaces.sweep()
    assert f"semel{number}-left" in await namespaces.run(["ip", "netns", "list"]), "its owner lives"
    held.close()
    await namespaces.sweep()
    assert f"semel{number}-left" not in await namespaces.run(["ip", "netns", "list"])
    assert not [each for each in await namespaces.links() if each.startswith(f"semel{number}")]
