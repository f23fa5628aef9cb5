"""A user of etcd: its token is fetched, renewed and sent with each request. A refusal names the setting to change."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.cluster.scripted_etcd import ScriptedEtcd, body
from broker.cluster.store_setups import world
from semel_broker.cluster.etcd.gateway import EtcdRefusedError, Gateway, NotSentError
from semel_broker.cluster.etcd.login import AuthenticateRequest, EtcdLogin
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.store import Put, StoreEntry, StoreError
from semel_broker.config.loading import ConfigError, load
from support import etcd
from support.etcd import EtcdProcess
from support.processes import BrokerProcess

SOON_S = 20
EMPTY = body('{"header":{"revision":"7"}}')
TOKEN_TTL_S = 1


def token(text: str) -> Any:
    return body(f'{{"header":{{}},"token":"{text}"}}')


def refusal(message: str, code: int, status: str) -> Any:
    return body(f'{{"error":"{message}","code":{code},"message":"{message}"}}', status)


INVALID = refusal("etcdserver: invalid auth token", 16, "401 Unauthorized")


def paths_and_tokens(server: ScriptedEtcd) -> list[tuple[str, str]]:
    """The path and the token of each request."""
    found = []
    for head in server.heads:
        lines = head.split("\r\n")
        header = next((line for line in lines if line.lower().startswith("authorization:")), ":")
        found.append((lines[0].split()[1], header.partition(":")[2].strip()))
    return found


async def read(server: ScriptedEtcd, login: EtcdLogin | None) -> bytes:
    gateway = Gateway([server.url], login=login)
    try:
        return await gateway.call("/v3/kv/range", b"{}", SOON_S * 1000)
    finally:
        gateway.close()


async def test_requests_carry_the_token_of_one_login() -> None:
    async with ScriptedEtcd(token("one"), EMPTY) as server:
        gateway = Gateway([server.url], login=EtcdLogin("semel", "secret"))
        for _ in range(3):
            await gateway.call("/v3/kv/range", b"{}", SOON_S * 1000)
        gateway.close()
        assert paths_and_tokens(server) == [("/v3/auth/authenticate", ""), *[("/v3/kv/range", "one")] * 3]


async def test_without_a_user_no_token_is_asked_for() -> None:
    async with ScriptedEtcd(EMPTY) as server:
        await read(server, None)
        assert paths_and_tokens(server) == [("/v3/kv/range", "")]


@pytest.mark.parametrize(
    "refused",
    [
        INVALID,
        refusal("etcdserver: revision of auth store is old", 3, "400 Bad Request"),
        refusal("etcdserver: user name is empty", 3, "400 Bad Request"),
    ],
)
async def test_a_request_that_is_refused_for_its_token_is_sent_again_with_another(refused: Any) -> None:
    async with ScriptedEtcd(token("one"), refused, token("two"), EMPTY) as server:
        await read(server, EtcdLogin("semel", "secret"))
        assert [each for _, each in paths_and_tokens(server)] == ["", "one", "", "two"]


async def test_a_token_that_stays_invalid_is_an_error_and_no_loop() -> None:
    async with ScriptedEtcd(token("one"), INVALID, token("two"), INVALID) as server:
        with pytest.raises(EtcdRefusedError, match="invalid auth token"):
            await read(server, EtcdLogin("semel", "secret"))
        assert len(server.requests) == 4


async def test_callers_that_are_refused_together_share_the_next_login() -> None:
    login = EtcdLogin("semel", "secret")
    asked: list[str] = []

    async def call(path: str, data: bytes) -> bytes:
        asked.append(path)
        await asyncio.sleep(0)
        return b'{"token":"%d"}' % len(asked)

    assert await login.token(call) == "1"
    assert await asyncio.gather(*(login.token(call, unlike="1") for _ in range(10))) == ["2"] * 10
    assert len(asked) == 2


async def test_a_refused_user_is_named_with_the_settings() -> None:
    wrong = refusal("etcdserver: authentication failed, invalid user ID or password", 3, "400 Bad Request")
    async with ScriptedEtcd(wrong) as server:
        with pytest.raises(EtcdRefusedError, match=r"accept the user 'semel': correct etcd\.user and etcd\.password"):
            await read(server, EtcdLogin("semel", "secret"))


async def test_a_request_whose_login_is_not_answered_has_not_been_sent() -> None:
    async def hang_up(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with ScriptedEtcd(hang_up) as server:
        with pytest.raises(NotSentError):
            await read(server, EtcdLogin("semel", "secret"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["etcd.endpoints=http://a:2379", "etcd.user=u"], "etcd.user and etcd.password together"),
        (["etcd.endpoints=http://a:2379", "etcd.password=p"], "etcd.user and etcd.password together"),
        (["etcd.user=u", "etcd.password=p"], "etcd.endpoints is not"),
    ],
)
def test_settings_that_could_have_no_effect_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(overrides=overrides)


def test_the_password_is_a_secret() -> None:
    config = load(overrides=["etcd.endpoints=http://a:2379", "etcd.user=u", "etcd.password=hunter2"])
    assert config.value_of("etcd.password").setting.doc.is_secret
    assert "hunter2" not in repr((config, EtcdLogin("u", "hunter2"), AuthenticateRequest("u", "hunter2")))


# --- a real etcd with users ---

NAMESPACE = "/semel-tests/users"


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.fixture(scope="module")
def etcd_with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """The user `semel` may read and write the keys of its cluster, and nothing else."""
    if etcd.binary() is None:
        pytest.skip(etcd.WHY_NOT)
    flags = [f"--auth-token-ttl={TOKEN_TTL_S}", "--bcrypt-cost=4"]
    process = EtcdProcess(tmp_path_factory.mktemp("etcd-users") / "data", flags).start()
    permission = {
        "permType": "READWRITE",
        "key": base64(f"{NAMESPACE}/"),
        "range_end": base64(f"{NAMESPACE}0"),  # the prefix
    }
    for path, request in (
        ("user/add", {"name": "root", "password": "r"}),
        ("user/add", {"name": "semel", "password": "secret"}),
        ("role/add", {"name": "root"}),
        ("role/add", {"name": "semel"}),
        ("role/grant", {"name": "semel", "perm": permission}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("user/grant", {"user": "semel", "role": "semel"}),
        ("auth/enable", {}),
    ):
        process.call(f"/v3/auth/{path}" if path != "auth/enable" else "/v3/auth/enable", request)
    yield process
    process.kill()


def store_of(process: EtcdProcess, password: str = "secret", namespace: str = NAMESPACE) -> EtcdStore:
    return EtcdStore([process.url], namespace=namespace, world=world(), login=EtcdLogin("semel", password))


@pytest.mark.real_time
async def test_a_store_with_a_user_reads_writes_watches_and_holds_sessions(etcd_with_users: EtcdProcess) -> None:
    store = store_of(etcd_with_users)
    session = await store.open_session(60_000)
    first = await store.transact([], [Put("a", b"1", session.lease)])
    assert first is not None
    watch = store.watch("", first)
    second = await store.transact([], [Put("b", b"2")])
    async with asyncio.timeout(SOON_S):
        assert (await anext(watch)).changes == (StoreEntry("b", b"2", second or 0),)
    await session.close()
    assert await store.get("a") is None
    await store.close()


@pytest.mark.real_time
async def test_a_wrong_password_and_keys_of_others_are_refused(etcd_with_users: EtcdProcess) -> None:
    for store, words in (
        (store_of(etcd_with_users, "wrong"), r"correct etcd\.user and etcd\.password"),
        (store_of(etcd_with_users, namespace="/other"), "permission denied"),
    ):
        with pytest.raises(StoreError, match=words):
            await store.list("")
        await store.close()
    nameless = EtcdStore([etcd_with_users.url], namespace=NAMESPACE, world=world())
    with pytest.raises(StoreError, match="user name is empty"):
        await nameless.list("")
    await nameless.close()


@pytest.mark.real_time
def test_a_broker_with_a_wrong_password_ends_with_one_sentence(etcd_with_users: EtcdProcess, tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        **{
            "etcd.endpoints": etcd_with_users.url,
            "cluster.name": NAMESPACE,
            "etcd.user": "semel",
            "etcd.password": "wrong",
        },
    )
    with pytest.raises(RuntimeError, match=r"store cannot be used: .* correct etcd\.user and etcd\.password"):
        broker.start()
    assert "Traceback" not in "".join(broker.log)
    broker.settings["etcd.password"] = "secret"
    broker.start()
    broker.stop()


@pytest.mark.real_time
@pytest.mark.thorough
async def test_a_session_and_a_watch_outlive_tokens_that_expire(etcd_with_users: EtcdProcess) -> None:
    """Tokens live for a second, and etcd forgets all of them when it restarts."""
    store = store_of(etcd_with_users)
    session = await store.open_session(9_000)  # a keep-alive each 3 s
    first = await store.transact([], [Put("held", b"1", session.lease)])
    watch = store.watch("held", first or 0)
    for number in range(3):
        await asyncio.sleep(4 * TOKEN_TTL_S)  # until etcd has forgotten the tokens
        if number == 1:
            await asyncio.to_thread(etcd_with_users.kill)
            await asyncio.to_thread(etcd_with_users._start, SOON_S)
        assert not session.has_ended
        revision = await store.transact([], [Put("held", b"%d" % number, session.lease)])
        async with asyncio.timeout(SOON_S):
            changes = await anext(watch)
            while isinstance(changes, int):
                changes = await anext(watch)
        assert changes.changes[-1] == StoreEntry("held", b"%d" % number, revision or 0)
    await session.close()
    await store.close()
