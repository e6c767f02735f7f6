"""What a connection costs on Trio alone: ``python http_bare.py PORT``.

It speaks as much HTTP as the memory measurement needs: a ``sleep`` is never answered, anything else
with the number of connections that sleep. One task per connection, no parser, no protocol.
"""

from __future__ import annotations

import sys

import trio

live = 0


async def _serve(stream: trio.SocketStream) -> None:
    try:
        await _answer(stream)
    except trio.BrokenResourceError:
        pass  # reset, as some who ask it do


async def _answer(stream: trio.SocketStream) -> None:
    global live
    async with stream:
        while request := await stream.receive_some(65_536):
            if b'"name":"sleep"' in request:
                live += 1
                try:
                    await trio.sleep_forever()
                finally:
                    live -= 1
            body = b'{"result":{"content":[{"type":"text","text":"%d"}]}}' % live
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )


async def _main(port: int) -> None:
    await trio.serve_tcp(_serve, port, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(_main, int(sys.argv[1]))
