"""Requests and answers between the dispatcher and its workers: a head as JSON and a body as bytes, on one socket."""

from __future__ import annotations

import json
import struct
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from typing import Any

LENGTHS = struct.Struct(">II")  # bytes of the head, bytes of the body


def send_frame(writer: StreamWriter, head: dict[str, Any], body: bytes = b"") -> None:
    """Hand a frame to the socket, which keeps what the other side has not read yet."""
    told = json.dumps(head).encode()
    writer.write(LENGTHS.pack(len(told), len(body)) + told + body)


async def next_frame(reader: StreamReader) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None when the other side has closed, or died in the middle of one."""
    try:
        head, body = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
        return json.loads(await reader.readexactly(head)), await reader.readexactly(body)
    except (IncompleteReadError, OSError):
        return None
