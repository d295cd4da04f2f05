"""Calls tools over and over with the official Python client, and counts what is lost.

    load.py MODE URL CLIENTS

MODE is the client's own word: `legacy` (sessions) or `2026-07-28` (none). Each of the clients connects once, and
calls until standard input ends: mostly `echo`, now and then `wait`, so that calls are under way at any moment. At the
end it prints one line of JSON.

A call is lost if the client says so or if its answer is another's. A session is lost if its client cannot go on with it.
"""

import json
import sys
import time
import warnings

import anyio
from mcp import Client, MCPDeprecationWarning

warnings.simplefilter("ignore", MCPDeprecationWarning)

# How long a call may take before it counts as lost.
PATIENCE = 20.0


class Tally:
    def __init__(self):
        self.calls = 0
        self.slow_calls = 0
        self.lost = []
        self.sessions_lost = 0
        self.longest = 0.0


async def one(client, number: int, turn: int, tally: Tally) -> None:
    slow = turn % 20 == 19
    message = f"{number}-{turn}"
    begun = time.monotonic()
    with anyio.fail_after(PATIENCE):
        if slow:
            result = await client.call_tool("wait", {"seconds": 0.5})
            tally.slow_calls += 1
        else:
            result = await client.call_tool("echo", {"message": message})
    if result.is_error:
        raise RuntimeError(f"the tool failed: {result.content}")
    if not slow and result.content[0].text != message:
        raise RuntimeError(f"{result.content[0].text!r} instead of {message!r}")
    tally.calls += 1
    tally.longest = max(tally.longest, time.monotonic() - begun)


async def caller(mode: str, url: str, number: int, stop: anyio.Event, tally: Tally) -> None:
    turn = 0
    async with Client(url, mode=mode) as client:
        while not stop.is_set():
            try:
                await one(client, number, turn, tally)
            except Exception as error:
                tally.lost.append(f"{type(error).__name__}: {error}"[:200])
                # Whether it was the call alone.
                try:
                    await one(client, number, 0, tally)
                except Exception:
                    tally.sessions_lost += 1
                    return
            turn += 1
            await anyio.sleep(0.005)


async def connected(mode: str, url: str, number: int, stop: anyio.Event, tally: Tally) -> None:
    while not stop.is_set():
        lost = tally.sessions_lost
        try:
            await caller(mode, url, number, stop, tally)
        except BaseExceptionGroup as group:
            tally.sessions_lost += 1
            tally.lost.append(f"connection: {group.exceptions[0]!r}"[:200])
        if lost != tally.sessions_lost:
            # It sends `initialize` again, as a client would.
            await anyio.sleep(0.1)


async def main(mode: str, url: str, clients: str) -> None:
    tally, stop = Tally(), anyio.Event()

    async def until_told() -> None:
        await anyio.to_thread.run_sync(sys.stdin.read)
        stop.set()

    async def told() -> None:
        while not stop.is_set():
            print(json.dumps({"calls": tally.calls, "lost": len(tally.lost)}), flush=True)
            await anyio.sleep(0.2)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until_told)
        tasks.start_soon(told)
        for number in range(int(clients)):
            tasks.start_soon(connected, mode, url, number, stop, tally)
    print(json.dumps({
        "done": True,
        "calls": tally.calls,
        "slow_calls": tally.slow_calls,
        "lost": len(tally.lost),
        "sessions_lost": tally.sessions_lost,
        "longest_s": round(tally.longest, 3),
        "errors": sorted(set(tally.lost))[:5],
    }), flush=True)


anyio.run(main, *sys.argv[1:])
