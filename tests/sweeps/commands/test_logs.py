"""The command without a cluster; tests/cluster/head/test_head.py has the tests with one."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat

import pytest
from aiohttp import web

from mislabel.cluster.jobs.client import Jobs
from mislabel.sweeps.commands.logs import follow
from tests.sweeps.commands.conftest import Mislabel


def test_it_needs_a_cluster(mislabel: Mislabel) -> None:
    said = mislabel("logs", "bowls")
    assert (said.code, said.out) == (2, "")
    assert "--cluster" in said.err


@contextmanager
def job_server(tails: list[list[str]], ends: list[str], code: int) -> Iterator[Jobs]:
    """A job server whose connections send these texts and are then lost, and that reports these states of the job."""
    connections, states = iter(tails), chain(ends, repeat(ends[-1]))
    address: asyncio.Queue[str] = asyncio.Queue()

    async def tail(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for text in next(connections, tails[-1]):
            await socket.send_str(text)
        await socket.close()
        return socket

    async def state(request: web.Request) -> web.Response:
        return web.json_response({"submission_id": "one", "status": next(states), "driver_exit_code": code})

    async def serve(over: asyncio.Event) -> None:
        application = web.Application()
        application.add_routes([web.get("/api/jobs/one/logs/tail", tail), web.get("/api/jobs/one", state)])
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        await address.put(f"http://{host}:{port}")
        await over.wait()
        await runner.cleanup()

    loop, over = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(over)))
    thread.start()
    try:
        yield Jobs(asyncio.run_coroutine_threadsafe(address.get(), loop).result(60), "token")
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.mark.server
def test_following_a_log_reconnects_until_the_job_ends(capsys: pytest.CaptureFixture[str]) -> None:
    tails = [["one\n", "tw"], ["one\ntwo\nth"], [], ["one\n", "two\n", "three\n"]]
    with job_server(tails, ["RUNNING", "RUNNING", "RUNNING", "SUCCEEDED"], 0) as jobs:
        assert follow(jobs, "one") == 0
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


@pytest.mark.server
def test_following_a_log_returns_the_exit_code_of_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    with job_server([["broken\n"]], ["RUNNING", "FAILED"], 2) as jobs:
        assert follow(jobs, "one") == 2
    assert capsys.readouterr().out == "broken\n"
