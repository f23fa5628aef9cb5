"""aiokafka's `helpers`: the TLS context from files."""

from __future__ import annotations

import ssl

__all__ = ["create_ssl_context"]


def create_ssl_context(
    *,
    cafile: str | None = None,
    capath: str | None = None,
    cadata: str | bytes | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: str | None = None,
    crlfile: str | None = None,
) -> ssl.SSLContext:
    """A context for `ssl_context`: it checks the broker's certificate and its host name.

    cafile, capath, cadata: the CAs to trust; without them those of the system. certfile, keyfile, password: the
    client's own certificate. crlfile: revoked certificates, in PEM. Raises OSError for a file that cannot be read,
    ssl.SSLError for one that is not PEM or does not fit.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile and keyfile:
        context.load_cert_chain(certfile=certfile, keyfile=keyfile, password=password)
    if crlfile:
        context.load_verify_locations(crlfile)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context
