"""The simulator's etcd answers as a real etcd does: the same requests go to both, one after the other."""

from __future__ import annotations

import urllib.error
from base64 import b64encode
from itertools import count
from random import Random
from typing import Any

import msgspec
import pytest
from semel_broker.cluster.etcd import messages
from sim.etcd import Etcd, EtcdError
from support.etcd import EtcdProcess

STEPS = 120
TTL_S = 3_600
namespaces = count()


class BothEtcds:
    """Sends every request to both. Revisions and leases are compared relative to the first one."""

    def __init__(self, process: EtcdProcess) -> None:
        self.process, self.etcd = process, Etcd()
        self.root = f"/semel-tests/differential/{next(namespaces)}/".encode()
        self.began = int(process.call("/v3/kv/range", {"key": _text(self.root)})["header"]["revision"]) - 1
        self.leases: dict[int, str] = {}

    def txn(self, compares: list[tuple[bytes, int]], changes: list[tuple[bytes, bytes | None, int]]) -> Any:
        mine = messages.TxnRequest(
            [messages.Compare(self.root + key, revision) for key, revision in compares],
            [
                messages.RequestOp(request_delete_range=messages.DeleteRangeRequest(self.root + key))
                if value is None
                else messages.RequestOp(messages.PutRequest(self.root + key, value, lease))
                for key, value, lease in changes
            ],
        )
        theirs = msgspec.to_builtins(mine)
        for compare in theirs["compare"]:
            compare["mod_revision"] += self.began if compare["mod_revision"] else 0
        for op in theirs["success"]:
            if op.get("request_put", {}).get("lease"):
                op["request_put"]["lease"] = self.leases.get(op["request_put"]["lease"], "12345")
        return self._compare("/v3/kv/txn", theirs, lambda: self.etcd.txn(mine))

    def range(self, key: bytes, end: bytes = b"") -> Any:
        mine = messages.RangeRequest(self.root + key, self.root + end if end else b"")
        return self._compare("/v3/kv/range", msgspec.to_builtins(mine), lambda: self.etcd.range(mine))

    def grant(self) -> int:
        lease = self.etcd.grant(TTL_S, 0.0).lease
        self.leases[lease] = self.process.call("/v3/lease/grant", {"TTL": TTL_S})["ID"]
        return lease

    def _compare(self, path: str, request: Any, mine: Any) -> Any:
        try:
            answer: Any = _seen(mine())
        except EtcdError as error:
            answer = (error.code, error.message)
        assert self._theirs(path, request) == answer, (path, request)
        return answer

    def _theirs(self, path: str, request: Any) -> Any:
        try:
            answer = self.process.call(path, request)
        except urllib.error.HTTPError as error:
            failure = msgspec.json.decode(error.read(), type=messages.Failure)
            return failure.code, failure.message
        kvs = [(kv["key"], kv.get("value", ""), int(kv["mod_revision"]) - self.began) for kv in answer.get("kvs", ())]
        return int(answer["header"]["revision"]) - self.began, answer.get("succeeded", False), kvs


def _seen(answer: Any) -> Any:
    kvs = [(_text(kv.key), _text(kv.value), kv.mod_revision) for kv in getattr(answer, "kvs", ())]
    return answer.header.revision, getattr(answer, "succeeded", False), kvs


def _text(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize("seed", range(3))
def test_the_simulated_etcd_answers_as_a_real_one(etcd_process: EtcdProcess, seed: int) -> None:
    rng, both = Random(seed), BothEtcds(etcd_process)
    keys = [b"a", b"b", b"c/1", b"c/2"]
    revision_of = dict.fromkeys(keys, 0)
    leases = [both.grant()]
    for _ in range(STEPS):
        step = rng.random()
        if step < 0.05:
            leases.append(both.grant())
        elif step < 0.1 and len(leases) > 1:
            _revoke(both, leases.pop(0))
        elif step < 0.2:
            both.range(rng.choice(keys))
        else:
            changed = rng.sample(keys, rng.randint(1, 3))
            compares = [(key, rng.choice((revision_of[key], revision_of[key], 0, 3))) for key in rng.sample(keys, 1)]
            lease = rng.choice((0, 0, rng.choice(leases), 99))
            both.txn(compares, [(key, rng.choice((b"", b"\xff1", None)), lease) for key in changed])
        _, _, kvs = both.range(b"", b"\xff")
        revision_of = dict.fromkeys(keys, 0)
        for key, _, revision in kvs:
            revision_of[next(each for each in keys if _text(both.root + each) == key)] = revision
    assert both.etcd.revision > STEPS / 4


def _revoke(both: BothEtcds, lease: int) -> None:
    both.process.call("/v3/lease/revoke", {"ID": both.leases[lease]})
    both.etcd.revoke(lease)
