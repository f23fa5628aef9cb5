"""EDGE: the health check of a container: `python -m semel_broker.health 127.0.0.1:9092`.

Asks the broker for its API versions and waits for the answer. It imports little beside the standard library, so it
takes hundredths of a second where a command of `semel` takes tenths. Exit status 0: the broker answers requests.

`--tls CA_FILE [CERTIFICATE_FILE] HOST:PORT` asks a listener with TLS, which must have a certificate of that CA for any
host: the check runs beside the broker. The certificate is for a listener that requires one. No login is needed.
"""

import socket
import ssl
import struct
import sys

from semel_protocol.api_key import ApiKey

CORRELATION_ID = 7
REQUEST = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, CORRELATION_ID, -1)
"""The header of version 1, without a client id. The body of version 0 is empty."""
TIMEOUT_SECONDS = 5.0
ANSWER_BYTES_MAX = 1 << 16


def main(arguments: list[str]) -> int:
    files: list[str] = []
    if arguments[:1] == ["--tls"]:
        files, arguments = arguments[1:-1], arguments[-1:]
    address = arguments[0] if arguments else "127.0.0.1:9092"
    host, colon, port = address.rpartition(":")
    if len(arguments) > 1 or len(files) > 2 or not colon or not port.isdecimal():
        sys.stderr.write("usage: python -m semel_broker.health [--tls CA_FILE [CERTIFICATE_FILE]] [HOST:PORT]\n")
        return 2
    try:
        ask(host.strip("[]"), int(port), _context(*files) if files else None)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the broker at {address} is not healthy: {error}\n")
        return 1
    return 0


def _context(ca_file: str, certificate_file: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.check_hostname = False
    if certificate_file is not None:
        context.load_cert_chain(certificate_file)
    return context


def ask(host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
    """Return when the broker has answered. Raises OSError without an answer, ValueError for another kind of answer."""
    with (
        socket.create_connection((host, port), TIMEOUT_SECONDS) as plain,
        plain if tls is None else tls.wrap_socket(plain) as connection,
    ):
        connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", _read(answer.read(4), 4))
            if not 6 <= size <= ANSWER_BYTES_MAX:
                raise ValueError(f"it answered with a frame of {size} bytes: no Kafka broker listens there")
            correlation_id, code = struct.unpack_from(">ih", _read(answer.read(size), size))
    if correlation_id != CORRELATION_ID or code != 0:
        raise ValueError(f"it answered with correlation id {correlation_id} and error code {code}")


def _read(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise ConnectionError("it closed the connection before it answered")
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
