"""Frames on a real socket."""

import asyncio
import socket

from labeldeconv.serving.frames import LENGTHS, next_frame, send_frame


async def _pair():
    here, there = socket.socketpair()
    return await asyncio.open_connection(sock=here), await asyncio.open_connection(sock=there)


def test_frames_arrive_whole_and_in_order():
    async def both():
        (_, writer), (reader, other) = await _pair()
        sent = [({"number": 1, "path": "/\u00e9"}, b""), ({}, b"\x00" * 3_000_000), ({"a": [["b", "c"]]}, b"end")]
        for head, body in sent:
            send_frame(writer, head, body)
        assert [await next_frame(reader) for _ in sent] == sent
        writer.close()
        assert await next_frame(reader) is None
        other.close()

    asyncio.run(both())


def test_half_a_frame_is_none():
    async def both():
        for half in (b"\x00", LENGTHS.pack(2, 5), LENGTHS.pack(2, 5) + b"{}abc"):
            (_, writer), (reader, other) = await _pair()
            writer.write(half)
            writer.close()
            assert await next_frame(reader) is None
            other.close()

    asyncio.run(both())
