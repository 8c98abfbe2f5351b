"""The life of a server and of its jobs: open before the first request, worked on meanwhile, closed after the last."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.errors import StoreError, StoreLocked
from holdfast.failpoints import listening
from holdfast.testing import drain, use


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        yield app


def server(hf, lifespan):
    double = hf.task(name="double", queue="sums")(lambda n: 2 * n)

    async def post(request):
        job = await double.aio.enqueue(int(request.path_params["n"]))
        return JSONResponse({"id": job.id})

    async def get(request):
        return JSONResponse(await hf.job(request.path_params["id"]).aio.result(10))

    routes = [Route("/doubles/{n}", post, methods=["POST"]), Route("/doubles/{id}", get)]
    return Starlette(routes=routes, lifespan=lifespan)


def test_the_store_is_open_from_before_the_first_request_until_the_end(tmp_path):
    hf = Holdfast(f"sqlite:{tmp_path / 'jobs.db'}")
    app = server(hf, hf.lifespan)
    assert not any(tmp_path.iterdir())
    with TestClient(app) as client:
        assert (tmp_path / "jobs.db").exists()
        engine = hf.engine
        assert client.post("/doubles/4").status_code == 200
        drain(hf)
    with pytest.raises(StoreError):
        engine.read().__enter__()


def test_a_worker_runs_inside_if_asked(hf):
    with TestClient(server(hf, hf.lifespan.working(concurrency=2))) as client:
        job_id = client.post("/doubles/4").json()["id"]
        assert client.get(f"/doubles/{job_id}").json() == 8
    assert not [thread for thread in threading.enumerate() if thread.name in ("holdfast-worker", "holdfast-pump")]


def test_a_worker_inside_takes_the_queues_it_was_given(tmp_path):
    hf = Holdfast(f"sqlite:{tmp_path / 'jobs.db'}")
    with TestClient(server(hf, hf.lifespan.working(["other"]))) as client:
        job_id = client.post("/doubles/4").json()["id"]
    assert hf.job(job_id).status == "QUEUED"
    hf.close()


def test_what_runs_at_the_end_is_given_time_then_released(tmp_path):
    hf = Holdfast(f"sqlite:{tmp_path / 'jobs.db'}")
    begun = threading.Event()

    @hf.task(name="long")
    def long():
        begun.set()
        hf.current.wait_cancelled(60)

    async def serve():
        async with hf.lifespan.working(grace=0)(None):
            job = await long.aio.enqueue()
            await asyncio.to_thread(begun.wait, 60)
            return job

    job = asyncio.run(serve())
    assert job.status != "RUNNING"  # nobody has to wait for its lease
    hf.close()


def test_it_composes_with_another_lifespan(hf):
    story = []

    @asynccontextmanager
    async def both(app):
        async with hf.lifespan(app):
            story.append(hf.jobs())
            yield {"known": "state"}
            story.append(hf.jobs())

    with TestClient(server(hf, both)) as client:
        client.post("/doubles/4")
    assert [len(jobs) for jobs in story] == [0, 1]


def test_a_server_starts_and_stops_as_often_as_it_likes(tmp_path):
    hf = Holdfast(f"wal:{tmp_path / 'journal'}")
    app = server(hf, hf.lifespan)
    for _ in range(2):
        with TestClient(app) as client:
            client.post("/doubles/4")
    assert len(hf.jobs()) == 2
    hf.close()


def test_a_test_may_lend_it_a_store_and_look_at_it_after_the_end(tmp_path):
    hf = Holdfast(f"sqlite:{tmp_path / 'production.db'}")
    with use(hf):
        with TestClient(server(hf, hf.lifespan)) as client:
            client.post("/doubles/4")
        assert len(hf.jobs()) == 1
    assert not any(tmp_path.iterdir())


def test_a_second_server_process_on_a_store_for_one_is_refused_at_its_start(tmp_path):
    url = f"wal:{tmp_path / 'journal'}"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from holdfast import open_store; s = open_store({url!r}); print(1, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"1\n"
        hf = Holdfast(url)
        with pytest.raises(StoreLocked), TestClient(server(hf, hf.lifespan)):
            raise AssertionError("the server must not start")
    finally:
        holder.communicate(b"\n")


def test_a_worker_that_fails_is_told_at_once_and_at_the_end(tmp_path, caplog):
    hf = Holdfast(f"sqlite:{tmp_path / 'jobs.db'}")
    failed = threading.Event()

    class Told:
        def filter(self, record):
            failed.set()
            return True

    def fail():
        raise StoreError("the disk is gone.")

    async def serve():
        async with hf.lifespan.working()(None):
            await asyncio.to_thread(failed.wait, 60)

    caplog.handler.addFilter(Told())
    with listening("pump.sending", fail), pytest.raises(StoreError, match="disk is gone"):
        asyncio.run(serve())
    assert [record.message for record in caplog.records if record.name == "holdfast.lifespan"] == ["worker.failed"]
