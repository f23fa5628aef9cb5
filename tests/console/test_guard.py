"""The token, the cookie, the origin and the host name decide about a request. None of these tests needs a cluster."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager

import pytest
from console.visitor import HOST, Visitor
from semel import Admin
from semel_console.files import page_files
from semel_console.guard import ConsoleGuard, is_loopback
from semel_console.link import ClusterLink

CREATE = "/api/do/create-topic"
NEW = {"name": "orders"}


def never() -> AbstractAsyncContextManager[Admin]:
    raise AssertionError("a refused request must not reach the cluster")


@pytest.fixture
async def visitor() -> Visitor:
    """A visitor that has entered a console with write access."""
    made = Visitor(ClusterLink(never), ConsoleGuard(may_write=True, host_names=["console.example"]))
    await made.enter()
    return made


async def test_without_a_session_there_are_no_facts_and_no_writes(visitor: Visitor) -> None:
    visitor.cookie = None
    for answer in (
        await visitor.get("/api/facts/overview"),
        await visitor.get("/api/facts/overview?watch=1"),
        await visitor.get("/api/session"),
        await visitor.post(CREATE, NEW),
    ):
        assert answer.status == 401
        assert "semel console" in answer.error


async def test_a_wrong_token_buys_no_session(visitor: Visitor) -> None:
    for token in ("", "0" * 48, visitor.guard.token[:-1], visitor.guard.write_token, "ü"):
        answer = await visitor.post("/api/login", {"token": token})
        assert answer.status == 401
        assert "set-cookie" not in answer.headers
    assert (await visitor.post("/api/login", {"token": 7})).status == 400
    assert (await visitor.post("/api/login", {})).status == 400


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(visitor: Visitor) -> None:
    answer = await visitor.post("/api/login", {"token": visitor.guard.token})
    assert re.fullmatch(
        r"semel_console_[0-9a-f]{8}=[0-9a-f]{48}; HttpOnly; SameSite=Strict; Path=/", answer.headers["set-cookie"]
    )
    assert visitor.guard.token not in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "changed",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": None},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"x_semel_write_token": None},
        {"x_semel_write_token": "0" * 48},
        {"content_type": "text/plain"},
        {"content_type": None},
        {"host": "evil.example"},
        {"cookie": None},
    ],
    ids=str,
)
async def test_a_write_of_another_origin_or_without_token_is_refused(
    visitor: Visitor, changed: dict[str, str | None]
) -> None:
    for path, body in ((CREATE, NEW), ("/api/do/abort-transaction", {"transactional_id": "shop"})):
        answer = await visitor.post(path, body, **changed)
        assert answer.status in (401, 403, 415, 421), answer.body


async def test_a_console_without_write_refuses_writes() -> None:
    visitor = Visitor(ClusterLink(never), ConsoleGuard())
    await visitor.enter()
    assert visitor.write_token == ""
    visitor.write_token = visitor.guard.write_token
    answer = await visitor.post(CREATE, NEW)
    assert answer.status == 403
    assert "--write" in answer.error


async def test_pages_of_other_origins_get_no_facts(visitor: Visitor) -> None:
    for site in ("cross-site", "same-site"):
        answer = await visitor.get("/api/facts/overview", **{"sec-fetch-site": site})
        assert answer.status == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9480", 200),
        ("localhost:9999", 200),
        ("[::1]:9480", 200),
        ("console.example", 200),
        ("CONSOLE.example:80", 200),
        ("evil.example:9480", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("LOCALHOST", 200),
        ("127.0.0.1", 200),
        ("[::1]", 200),
        ("[0:0:0:0:0:0:0:1]:80", 200),
        ("[::ffff:127.0.0.1]", 200),
        ("", 421),
        (None, 421),
        *(
            (each, 421)
            for each in (
                "[::1].evil",
                "[::1]evil",
                "[::1]:80.evil",
                "[::1",
                "::1",
                "[::1%25evil]",
                "[evil]",
                "[127.0.0.1.evil]",
                "[]",
                "[::1]]",
                "[[::1]]",
                "localhost.evil",
                "localhost:80.evil",
                "localhost:evil",
                "localhost:",
                "localhost:65536",
                "localhost:80:80",
                "127.0.0.1.evil",
                "127.0.0.1:80@evil",
                "localhost@evil",
                "evil@localhost",
                "evil:x@localhost",
                "localhost/evil",
                "localhost#evil",
                "localhost?evil",
                "localhost\\evil",
                "localhost, evil",
                "localhost evil",
                "evil, localhost",
                "127.0.0.1, evil",
                "localhost.",
                "127.0.0.1.",
                "127.1",
                "2130706433",
                "0x7f000001",
                "127.0.0.01",
                "console.example.evil",
                "xconsole.example",
                "console.example.",
            )
        ),
    ],
)
async def test_only_allowed_host_names_are_served(visitor: Visitor, host: str | None, status: int) -> None:
    assert (await visitor.get("/", host=host)).status == status


async def test_each_answer_forbids_foreign_and_inline_scripts(visitor: Visitor) -> None:
    for path in ("/", "/main.js", "/api/session", "/nosuch", "/api/facts/nosuch"):
        headers = (await visitor.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert (await visitor.get("/api/session")).headers["cache-control"] == "no-store"


async def test_unknown_names_are_sentences(visitor: Visitor) -> None:
    assert (await visitor.get("/api/facts/nosuch")).error == "There is no page 'nosuch'"
    assert (await visitor.post("/api/do/nosuch", {})).error == "There is no change 'nosuch'"
    assert (await visitor.post("/api/do/create-topic", {"name": "x", "odd": 1})).status == 400
    assert (await visitor.post("/api/do/create-topic", {"name": "x" * 70_000})).status == 413


async def test_the_page_is_small_and_asks_no_other_host(visitor: Visitor) -> None:
    files = page_files()
    assert sum(len(each.body) for each in files) < 300_000
    assert {"/", "/main.js", "/style.css"} <= {each.path for each in files}
    for each in files:
        answer = await visitor.get(each.path)
        assert (answer.status, answer.body) == (200, each.body)
        assert (await visitor.get(each.path, **{"if-none-match": each.tag})).status == 304
        text = each.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text), each.path


def test_all_modules_are_asked_for_at_once() -> None:
    files = {each.path: each.body.decode() for each in page_files()}
    modules = {path.removeprefix("/") for path in files if path.endswith(".js")}
    preloaded = set(re.findall(r'<link rel="modulepreload" href="([^"]+)">', files["/"]))
    assert preloaded == modules - {"main.js"}


def test_no_script_makes_markup_of_text() -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    for each in page_files():
        assert not re.search(forbidden, each.body.decode()), each.path
        assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", each.body.decode()), each.path


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "broker.example")))
    assert HOST.startswith("127.")
