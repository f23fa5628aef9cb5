"""EDGE: the files of the page, read once from the package."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import msgspec

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(msgspec.Struct, frozen=True):
    """One file. path: in the address. tag: changes with the contents."""

    path: str
    body: bytes
    media_type: str
    tag: str


def page_files() -> list[PageFile]:
    """All files of the page; index.html is `/`."""
    found = []
    for each in sorted(files("semel_console").joinpath("assets").iterdir(), key=lambda file: file.name):
        media_type = MEDIA_TYPES.get(each.name.rpartition(".")[2])
        if media_type is not None:
            body = each.read_bytes()
            path = "/" if each.name == "index.html" else f"/{each.name}"
            found.append(PageFile(path, body, media_type, f'"{hashlib.sha256(body).hexdigest()[:16]}"'))
    return found
