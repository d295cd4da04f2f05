"""Clients of run.py that are no load generators: idle streams, and a good client beside many bad ones."""

import asyncio
import json
import re
import time

INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "peers", "version": "1"}},
}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "hello"}}}


def request(port, method, message=None, session=None, version=None, accept="application/json, text/event-stream"):
    body = json.dumps(message) if message else ""
    lines = [f"{method} /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", f"accept: {accept}"]
    if message:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    if session:
        lines += [f"mcp-session-id: {session}"]
    if version:
        lines += [f"mcp-protocol-version: {version}"]
    return "\r\n".join([*lines, "", body]).encode()


async def response(reader):
    """The head of a response, and its body if that ends; the body of an event stream is read to its first message."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()
    status = int(head.split(" ", 2)[1])
    body = b""
    if length := re.search(r"(?i)content-length: (\d+)", head):
        body = await asyncio.wait_for(reader.readexactly(int(length[1])), 30)
    elif "transfer-encoding: chunked" in head.lower():
        while True:
            size = int((await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)).split(b";")[0], 16)
            body += await asyncio.wait_for(reader.readexactly(size), 30)
            await reader.readexactly(2)
            if not size:
                break
    return status, head, body


async def hold(port, count, seconds):
    """Opens sessions with a notification stream each (GET), until there are `count` or the time is over. Returns the connections."""
    held, until = [], time.monotonic() + seconds

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(port, "POST", INITIALIZE))
        status, head, body = await response(reader)
        session, version = negotiated(head, body)
        if status != 200 or not session:
            writer.close()
            raise RuntimeError("no sessions")
        writer.write(request(port, "GET", session=session, version=version, accept="text/event-stream"))
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()
        if " 200 " not in head.splitlines()[0]:
            writer.close()
            raise RuntimeError(f"the stream is refused: {head.splitlines()[0]}")
        held.append(writer)

    turns = iter(range(count))

    async def worker():
        for _ in turns:
            if until < time.monotonic():
                return
            await one()

    results = await asyncio.gather(*(worker() for _ in range(32)), return_exceptions=True)
    if not held:
        raise RuntimeError(next((str(result) or type(result).__name__ for result in results if result), "no stream"))
    return held


def negotiated(head, body):
    """The session ID and the protocol version of a response to `initialize`."""
    session = re.search(r"(?i)mcp-session-id: (\S+)", head)
    version = re.search(r'"protocolVersion":\s*"([^"]+)"', body.decode(errors="replace"))
    return session[1] if session else None, version[1] if version else "2025-06-18"


def idle_streams(port, count, seconds, resident):
    """KiB of resident memory for each idle stream, and how many there were; or the reason why there are none."""

    async def run():
        for writer in await hold(port, 200, seconds):
            writer.transport.abort()
        await asyncio.sleep(2)
        before = resident()
        held = await hold(port, count, seconds)
        await asyncio.sleep(2)
        figure = (resident() - before) * 1024 / len(held), len(held)
        for writer in held:
            writer.transport.abort()
        return figure

    try:
        return asyncio.run(run())
    except (OSError, RuntimeError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
        return str(error) or type(error).__name__


def beside_bad_clients(port, count, seconds):
    """A client that calls 100 times a second, alone and then beside `count` clients that send a head byte by byte.

    Returns p99 in ms alone, p99 beside them, how many of its calls failed, and how many of the bad clients the server has disconnected.
    """

    async def good(seconds):
        times, failures, number = [], 0, 0
        reader = writer = session = version = None
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            begin = time.perf_counter()
            try:
                if writer is None:
                    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 5)
                    writer.write(request(port, "POST", INITIALIZE))
                    _, head, body = await asyncio.wait_for(response(reader), 5)
                    session, version = negotiated(head, body)
                    writer.write(request(port, "POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, session, version))
                    await asyncio.wait_for(response(reader), 5)
                    begin = time.perf_counter()
                number += 1
                writer.write(request(port, "POST", CALL | {"id": number}, session, version))
                status, _, body = await asyncio.wait_for(response(reader), 5)
                if status != 200 or b"hello" not in body:
                    raise RuntimeError(status)
                times.append((time.perf_counter() - begin) * 1000)
            except (OSError, RuntimeError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError):
                failures += 1
                if writer:
                    writer.transport.abort()
                writer = None
            await asyncio.sleep(0.01)
        times.sort()
        return times[int(len(times) * 0.99)] if times else None, failures

    async def bad(gone):
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 10)
            writer.write(b"POST /mcp HTTP/1.1\r\nx: ")
            while True:
                writer.write(b"y")
                await writer.drain()
                try:
                    if await asyncio.wait_for(reader.read(1024), 1) == b"":
                        break
                except asyncio.TimeoutError:
                    pass
        except (OSError, asyncio.TimeoutError):
            pass
        gone.append(1)

    async def run():
        alone, _ = await good(seconds / 2)
        gone = []
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(bad(gone)))
            if len(tasks) % 50 == 0:
                await asyncio.sleep(0.02)
        await asyncio.sleep(1)
        beside, failures = await good(seconds)
        ended = len(gone)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return alone, beside, failures, ended

    return asyncio.run(run())
