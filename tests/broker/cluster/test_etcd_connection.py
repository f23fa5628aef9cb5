"""HTTP towards etcd: malformed, endless and oversized responses are refused; a valid response may arrive in any
pieces.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable

import pytest
from semel_broker.cluster.etcd import connection as connection_module
from semel_broker.cluster.etcd.connection import (
    HEAD_BYTES_MAX,
    PART_BYTES_MAX,
    UNREAD_BYTES_MAX,
    BadResponseError,
    EtcdConnection,
    EtcdEndpoint,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
KIB = 1 << 10


class RecordedTransport(asyncio.Transport):
    """A transport without a network. It records the calls of the protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_paused = False
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_aborted = True


def connected() -> tuple[EtcdConnection, RecordedTransport]:
    connection, wire = EtcdConnection(EtcdEndpoint("etcd", 2379, is_tls=False)), RecordedTransport()
    connection.connection_made(wire)
    return connection, wire


def asked(*received: bytes, is_closed: bool = False) -> EtcdConnection:
    """A connection that has sent a request and received these bytes. `closed`: the peer has closed it after them."""
    connection, _ = connected()
    connection.send("/v3/kv/range", b"{}")
    for data in received:
        connection.data_received(data)
    if is_closed:
        connection.eof_received()
    return connection


async def whole(connection: EtcdConnection) -> tuple[int, bytes]:
    return await connection.status(), await connection.body()


async def never_finishes(waiting: Awaitable[object]) -> None:
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


def test_a_request_is_written_at_once_with_its_length() -> None:
    connection, wire = connected()
    connection.send("/v3/kv/range", b'{"key":""}')
    assert wire.sent == (
        b"POST /v3/kv/range HTTP/1.1\r\nHost: etcd:2379\r\nContent-Type: application/json\r\n"
        b'Grpc-Metadata-Hasleader: true\r\nContent-Length: 10\r\n\r\n{"key":""}'
    )
    assert not connection.is_usable


async def test_a_response_is_read_however_its_bytes_are_cut() -> None:
    with_length = OK + b"Content-Length: 7\r\n\r\n0123456"
    in_chunks = CHUNKED + b"3\r\n012\r\n4;extension=1\r\n3456\r\n0\r\nTrailer: x\r\n\r\n"
    after_interim = b"HTTP/1.1 100 Continue\r\n\r\n" + with_length
    for data in (with_length, in_chunks, after_interim):
        for size in (1, 2, 3, 5, len(data)):
            connection = asked(*(data[at : at + size] for at in range(0, len(data), size)))
            assert await whole(connection) == (200, b"0123456")
            assert connection.is_usable


async def test_a_response_of_http_1_0_ends_with_its_connection() -> None:
    connection = asked(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request", is_closed=True)
    assert await whole(connection) == (400, b"Client sent an HTTP request")
    assert not connection.is_usable


@pytest.mark.parametrize("size", [b"-1", b"-0", b"+5", b"0x5", b"5 5", b"", b"five", b"1" * 21])
async def test_a_chunk_size_that_is_no_hexadecimal_number_is_refused(size: bytes) -> None:
    connection = asked(CHUNKED + size + b"\r\n01234\r\n0\r\n\r\n")
    assert await connection.status() == 200
    with pytest.raises(BadResponseError, match="chunk header"):
        await connection.body()
    assert not connection.is_usable


async def test_a_huge_chunk_is_read_up_to_the_maximum_of_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BODY_BYTES_MAX", 100)
    connection = asked(CHUNKED + b"f" * 20 + b"\r\n" + b"x" * 100)
    assert await connection.status() == 200
    await never_finishes(connection.body())
    connection = asked(CHUNKED + b"f" * 20 + b"\r\n" + b"x" * 101)
    with pytest.raises(BadResponseError, match="more than 100 bytes"):
        await whole(connection)


async def test_a_chunk_that_is_not_followed_by_a_line_end_is_refused() -> None:
    connection = asked(CHUNKED + b"3\r\n012345\r\n0\r\n\r\n")
    with pytest.raises(BadResponseError, match="chunk footer"):
        await whole(connection)


async def test_a_response_without_an_end_is_refused_at_the_maximum_of_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BODY_BYTES_MAX", 1_000)
    until_closed, in_chunks = OK + b"\r\n" + b"x" * 2_000, CHUNKED + b"64\r\n" + b"x" * 100 + b"\r\n"
    for data in (until_closed, in_chunks + in_chunks.removeprefix(CHUNKED) * 20):
        with pytest.raises(BadResponseError, match="more than 1000 bytes"):
            await whole(asked(data))


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"", b"5, 6", b"9" * 21])
async def test_a_content_length_that_is_no_number_is_refused(length: bytes) -> None:
    with pytest.raises(BadResponseError, match=r"Content-Length|content-length"):
        await asked(OK + b"Content-Length: " + length + b"\r\n\r\n01234").status()


async def test_a_content_length_above_the_maximum_is_refused_before_the_body() -> None:
    with pytest.raises(BadResponseError, match="99999999999999 bytes; at most"):
        await asked(OK + b"Content-Length: 99999999999999\r\n\r\n").status()


async def test_a_head_beyond_its_bound_is_refused() -> None:
    endless = b"x" * (HEAD_BYTES_MAX + PART_BYTES_MAX)
    for data in (endless, OK + b"Name: " + endless, OK + b"Name: value\r\n" * (len(endless) // 13)):
        with pytest.raises(BadResponseError, match=r"too long|illegal"):
            await asked(data).status()


async def test_a_chunks_head_and_trailers_beyond_the_bound_of_a_head_are_refused() -> None:
    endless = b"x" * (HEAD_BYTES_MAX + PART_BYTES_MAX)
    for data in (b"5;" + endless, b"0\r\nName: " + endless):
        with pytest.raises(BadResponseError, match="too long"):
            await whole(asked(CHUNKED + data))


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n"],
)
async def test_bytes_that_are_not_http_are_refused(data: bytes) -> None:
    with pytest.raises(BadResponseError, match=r"not valid HTTP/1\.1"):
        await asked(data).status()


async def test_a_body_that_is_cut_short_is_refused() -> None:
    for data in (OK + b"Content-Length: 5\r\n\r\n0123", CHUNKED + b"5\r\n0123", CHUNKED + b"4\r\n0123\r\n"):
        with pytest.raises(BadResponseError, match=r"closed connection"):
            await whole(asked(data, is_closed=True))


async def test_a_connection_that_is_lost_within_a_body_raises_its_error() -> None:
    connection = asked(OK + b"\r\n0123")
    assert await connection.status() == 200
    connection.connection_lost(ConnectionResetError("Connection reset by peer"))
    with pytest.raises(ConnectionResetError, match="reset by peer"):
        await connection.body()


async def test_a_connection_that_is_closed_before_a_response_raises_connection_reset() -> None:
    for data in (b"", b"HTTP/1.1 20"):
        with pytest.raises(ConnectionResetError, match="before it carried a response"):
            await asked(data, is_closed=True).status()


async def test_waiting_for_a_response_ends_when_the_connection_is_lost() -> None:
    connection = asked()
    waiting = asyncio.ensure_future(connection.status())
    await asyncio.sleep(0)
    connection.connection_lost(ssl.SSLError("tlsv13 alert certificate required"))
    with pytest.raises(ssl.SSLError, match="certificate required"):
        await waiting


async def test_a_connection_that_was_closed_between_two_requests_is_not_usable() -> None:
    connection = asked(OK + b"Content-Length: 2\r\n\r\n{}")
    assert await whole(connection) == (200, b"{}")
    assert connection.is_usable
    connection.eof_received()
    assert not connection.is_usable
    connection = asked(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert await whole(connection) == (200, b"{}")
    assert not connection.is_usable


async def test_bytes_that_no_request_asked_for_make_a_connection_unusable() -> None:
    second = OK + b"Content-Length: 2\r\n\r\n[]"
    connection = asked(OK + b"Content-Length: 2\r\n\r\n{}" + second)
    assert await whole(connection) == (200, b"{}")
    assert not connection.is_usable
    connection = asked(OK + b"Content-Length: 2\r\n\r\n{}")
    assert await whole(connection) == (200, b"{}")
    connection.data_received(second)
    assert not connection.is_usable


async def test_a_connection_carries_several_requests_in_turn() -> None:
    connection, wire = connected()
    for n in range(3):
        connection.send(f"/{n}", b"{}")
        connection.data_received(CHUNKED + b"1\r\n%d\r\n0\r\n\r\n" % n)
        assert await whole(connection) == (200, b"%d" % n)
    assert wire.sent.count(b"POST ") == 3


async def test_lines_are_read_however_chunks_cut_them() -> None:
    lines = b'{"a":1}\n\n\n{"b":2}\n{"c":3}\nrest without an end'
    for size in (1, 2, 7, 100):
        parts = [lines[at : at + size] for at in range(0, len(lines), size)]
        connection = asked(CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n")
        assert await connection.status() == 200
        assert [await connection.line() for _ in range(4)] == [b'{"a":1}', b'{"b":2}', b'{"c":3}', b""]


async def test_a_line_beyond_the_maximum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BODY_BYTES_MAX", 1_000)
    connection = asked(CHUNKED + (b"64\r\n" + b"x" * 100 + b"\r\n") * 20)
    assert await connection.status() == 200
    with pytest.raises(BadResponseError, match="a line has more than 1000 bytes"):
        await connection.line()


async def test_a_connection_is_not_read_while_too_much_of_it_is_unread() -> None:
    connection, wire = connected()
    connection.send("/v3/watch", b"{}")
    size = UNREAD_BYTES_MAX * 2
    connection.data_received(OK + b"Content-Length: %d\r\n\r\n" % size)
    assert await connection.status() == 200
    for _ in range(2):
        connection.data_received(b"x" * UNREAD_BYTES_MAX)
    assert wire.is_paused
    assert len(await connection.body()) == size
    assert not wire.is_paused


def test_closing_a_connection_aborts_it() -> None:
    connection, wire = connected()
    connection.close()
    assert wire.is_aborted
    connection.connection_lost(None)
    connection.close()
