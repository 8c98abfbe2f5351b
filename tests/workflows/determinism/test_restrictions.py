"""What cannot be replayed is refused, with the line and with what to use instead."""

import _thread
import asyncio
import gc
import http.client
import logging
import multiprocessing
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from holdfast import Holdfast
from holdfast.errors import WorkflowNotAllowed
from holdfast.workflows.api import context as hf
from holdfast.workflows.determinism.garbage import is_collecting
from support.flows import World


def start_thread():
    threading.Thread(target=print).start()


def open_socket():
    socket.socket()


def run_command():
    subprocess.run([sys.executable, "-c", ""], check=True)


async def in_executor():
    await asyncio.get_running_loop().run_in_executor(None, print)


async def to_thread():
    await asyncio.to_thread(print)


async def connect():
    await asyncio.open_connection("127.0.0.1", 9)


async def serve():
    await asyncio.start_server(print, "127.0.0.1", 0)


async def run_shell():
    await asyncio.create_subprocess_shell("true")


async def run_exec():
    await asyncio.create_subprocess_exec("true")


async def nothing():
    pass


def loop():
    return asyncio.get_running_loop()


WAYS = {
    # threads
    "threading.Thread": (start_thread, "hf.step"),
    "threading.Timer": (lambda: threading.Timer(1, print).start(), "hf.step"),
    "_thread.start_new_thread": (lambda: _thread.start_new_thread(print, ()), "hf.step"),
    "ThreadPoolExecutor": (lambda: ThreadPoolExecutor(1).submit(print), "hf.step"),
    "run_in_executor": (in_executor, "hf.step"),
    "asyncio.to_thread": (to_thread, "hf.step"),
    "set_default_executor": (lambda: loop().set_default_executor(None), "hf.step"),
    "shutdown_default_executor": (lambda: loop().shutdown_default_executor(), "hf.step"),
    "call_soon_threadsafe": (lambda: loop().call_soon_threadsafe(print), "run.signal"),
    # sockets
    "socket.socket": (open_socket, "hf.step"),
    "socket.socketpair": (lambda: socket.socketpair(), "hf.step"),  # noqa: PLW0108 - looked up in the turn
    "socket.create_connection": (lambda: socket.create_connection(("127.0.0.1", 9), 0.1), "hf.step"),
    "socket.getaddrinfo": (lambda: socket.getaddrinfo("localhost", 1), "hf.step"),
    "socket.gethostbyname": (lambda: socket.gethostbyname("localhost"), "hf.step"),
    "socket.gethostbyaddr": (lambda: socket.gethostbyaddr("127.0.0.1"), "hf.step"),
    "socket.getnameinfo": (lambda: socket.getnameinfo(("127.0.0.1", 1), 0), "hf.step"),
    "socket.gethostname": (socket.gethostname, "hf.step"),
    "urllib.request.urlopen": (lambda: urllib.request.urlopen("http://127.0.0.1:9/", timeout=0.1), "hf.step"),
    "http.client": (lambda: http.client.HTTPConnection("127.0.0.1", 9, timeout=0.1).connect(), "hf.step"),
    "asyncio.open_connection": (connect, "hf.step"),
    "asyncio.start_server": (serve, "hf.step"),
    "create_datagram_endpoint": (lambda: loop().create_datagram_endpoint(print), "hf.step"),
    "getaddrinfo": (lambda: loop().getaddrinfo("localhost", 1), "hf.step"),
    "add_reader": (lambda: loop().add_reader(0, print), "hf.step"),
    "add_writer": (lambda: loop().add_writer(1, print), "hf.step"),
    "connect_read_pipe": (lambda: loop().connect_read_pipe(print, sys.stdin), "hf.step"),
    # processes
    "subprocess.run": (run_command, "hf.step"),
    "subprocess.Popen": (lambda: subprocess.Popen(["true"]), "hf.step"),
    "os.system": (lambda: os.system("true"), "hf.step"),
    "os.popen": (lambda: os.popen("true"), "hf.step"),
    "os.fork": (os.fork, "hf.step"),
    "os.posix_spawn": (lambda: os.posix_spawn("/bin/true", ["true"], {}), "hf.step"),
    "os.execv": (lambda: os.execv("/nowhere", ["x"]), "hf.step"),
    "os.kill": (lambda: os.kill(os.getpid(), 0), "hf.step"),
    "multiprocessing.Process": (lambda: multiprocessing.Process(target=print).start(), "hf.step"),
    "multiprocessing, spawned": (lambda: multiprocessing.get_context("spawn").Process(target=print).start(), "hf.step"),
    "create_subprocess_shell": (run_shell, "hf.step"),
    "create_subprocess_exec": (run_exec, "hf.step"),
    # real time
    "time.sleep": (lambda: time.sleep(0), "asyncio.sleep"),  # noqa: TID251 - the mistake in question
    "threading.Event.wait": (lambda: threading.Event().wait(0.01), "asyncio.Event"),
    "queue.Queue.get": (lambda: queue.Queue().get(timeout=0.01), "asyncio.Queue"),
    "select.select": (lambda: select.select([], [], [], 0), "asyncio.sleep"),
    # signals of the system
    "signal.signal": (lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), "hf.signal"),
    "signal.alarm": (lambda: signal.alarm(0), "hf.signal"),
    "add_signal_handler": (lambda: loop().add_signal_handler(signal.SIGUSR1, print), "hf.signal"),
    # the loop
    "set_task_factory": (lambda: loop().set_task_factory(None), "wrap"),
    "set_exception_handler": (lambda: loop().set_exception_handler(None), "await the task"),
    "loop.stop": (lambda: loop().stop(), "return"),
    "loop.close": (lambda: loop().close(), "return"),
    "asyncio.run": (lambda: asyncio.run(nothing()), "await what you need"),
    "asyncio.Runner": (lambda: asyncio.Runner().run(nothing()), "await what you need"),
    "asyncio.new_event_loop": (lambda: asyncio.new_event_loop(), "await what you need"),  # noqa: PLW0108 - looked up in the turn
    "asyncio.set_event_loop": (lambda: asyncio.set_event_loop(None), "await what you need"),
    "run_until_complete": (lambda: loop().run_until_complete(None), "await what you need"),
}
#: Only an `async def` workflow can await these, or get hold of its loop.
AWAITED = {in_executor, to_thread, connect, serve, run_shell, run_exec}


@pytest.mark.parametrize("way", list(WAYS))
def test_it_is_refused_with_the_line_and_what_to_use_instead(way):
    function, instead = WAYS[way]

    async def main() -> list[str]:
        try:
            found = function()
            if asyncio.iscoroutine(found):
                await found
        except WorkflowNotAllowed as problem:
            return [str(problem), problem.facts["location"]]
        return []

    world = World(guarded=True)
    text, location = world.run(world.workflow(main))
    assert instead in text
    assert "Nothing was done" in text
    assert location.startswith("test_restrictions.py:")


@pytest.mark.parametrize("way", [way for way, (function, _) in WAYS.items() if function not in AWAITED])
def test_it_is_refused_in_a_workflow_without_async_as_well(way):
    function, instead = WAYS[way]

    def main() -> list[str]:
        try:
            found = function()
            if asyncio.iscoroutine(found):
                found.close()
        except WorkflowNotAllowed as problem:
            return [str(problem), problem.facts["location"]]
        return []

    world = World(guarded=True)
    text, location = world.run(world.workflow(main))
    assert instead in text
    assert location.startswith("test_restrictions.py:")


def test_the_line_is_that_of_an_installed_library_if_it_is_what_does_it(tmp_path, monkeypatch):
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "dials_out.py").write_text(
        "import socket\n\n\ndef dial():\n    return socket.create_connection(('x', 1))\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    import dials_out  # noqa: PLC0415 - made above

    async def main() -> str:
        try:
            dials_out.dial()
        except WorkflowNotAllowed as problem:
            return problem.facts["location"]
        return ""

    world = World(guarded=True)
    assert world.run(world.workflow(main)) == "dials_out.py:5 in dial"


def test_other_threads_do_as_they_like_while_a_workflow_runs():
    """Beside a turn that has begun and not ended, a step or an activity may do everything."""
    begun, done = threading.Event(), SimpleQueue()
    story = []

    def beside():
        begun.wait()
        for way in BESIDE:
            WAYS[way][0]()
            story.append(way)
        done.put(True)

    async def main() -> int:
        begun.set()
        done.get()  # a plain queue of C: a turn that is held up is what the other thread needs
        with pytest.raises(WorkflowNotAllowed):
            socket.socket()
        return 1

    thread = threading.Thread(target=beside)
    thread.start()
    world = World(guarded=True)
    assert world.run(world.workflow(main)) == 1
    thread.join()
    assert story == BESIDE


#: What leaves nothing behind that a test would have to clear away.
BESIDE = [
    "threading.Thread",
    "_thread.start_new_thread",
    "socket.getaddrinfo",
    "socket.gethostname",
    "subprocess.run",
    "os.system",
    "os.kill",
    "time.sleep",
    "threading.Event.wait",
    "select.select",
    "asyncio.run",
    "asyncio.set_event_loop",
]


def test_a_worker_runs_steps_and_tasks_beside_turns_without_any_of_it():
    """The same with a real worker: a step that does it all, while the turn it belongs to is under way."""
    app = Holdfast("memory:", guard_workflows=True)

    def everything() -> int:
        for way in BESIDE:
            WAYS[way][0]()
        return len(BESIDE)

    @app.task
    def work() -> int:
        return everything()

    @app.workflow
    async def flow() -> list[int]:
        found = await asyncio.gather(work.call(), app.step(everything), work.call())
        with pytest.raises(WorkflowNotAllowed):
            run_command()
        return found

    worker = app.worker(concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert flow.start().result(timeout=60) == [len(BESIDE)] * 3
    finally:
        worker.stop()
        thread.join()
        app.close()


def test_steps_and_activities_may_do_all_of_it():
    def work() -> int:
        thread = threading.Thread(target=str)
        thread.start()
        thread.join()
        socket.socket().close()
        return 1

    world = World(guarded=True)
    activity = world.activity(work)

    async def main() -> int:
        return await hf.step(work) + await activity.call()

    assert world.run(world.workflow(main)) == 2


def test_importing_a_module_within_a_turn_is_exempt(tmp_path, monkeypatch):
    (tmp_path / "opens_a_socket.py").write_text("import socket\nsocket.socket().close()\nVALUE = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def main() -> int:
        import opens_a_socket  # noqa: PLC0415 - within a turn, on purpose

        return opens_a_socket.VALUE

    world = World(guarded=True)
    assert world.run(world.workflow(main)) == 7


def test_as_completed_over_coroutines_is_refused_and_over_tasks_works():
    story = []

    async def main() -> list[int]:
        waiting = asyncio.sleep(1)
        story.clear()
        try:
            for one in asyncio.as_completed([waiting]):
                await one
        except WorkflowNotAllowed as problem:
            story.append(str(problem))
        tasks = [asyncio.create_task(asyncio.sleep(seconds, seconds)) for seconds in (3, 1, 2)]
        return [await one for one in asyncio.as_completed(tasks)]

    world = World(guarded=True)
    assert world.run(world.workflow(main)) == [1, 2, 3]
    assert "hf.as_completed" in story[0]


def test_a_command_of_a_finaliser_is_refused():
    refused = []

    class Careless:
        def __init__(self) -> None:
            self.me = self  # only the collector finds it

        def __del__(self) -> None:
            try:
                assert is_collecting()
                hf.send_signal("x", "y")
            except WorkflowNotAllowed:
                refused.append(True)

    async def main() -> None:
        Careless()
        gc.collect()
        await asyncio.sleep(1)

    world = World(guarded=True)
    world.run(world.workflow(main))
    assert refused == [True]
    assert len(world.history()) == 4


def test_workflow_functions_outside_of_a_workflow_are_refused():
    with pytest.raises(WorkflowNotAllowed, match=r"hf\.now"):
        hf.now()
    with pytest.raises(WorkflowNotAllowed, match=r"hf\.step"):
        hf.step(print)


def test_a_log_handler_may_open_a_socket_within_a_turn():
    opened = []

    class Distant(logging.Handler):
        def emit(self, record):
            socket.socket().close()
            opened.append(record.getMessage())

    async def main() -> None:
        hf.log.warning("told")

    handler = Distant()
    hf.log.logger.addHandler(handler)
    try:
        world = World(guarded=True)
        world.run(world.workflow(main))
    finally:
        hf.log.logger.removeHandler(handler)
    assert opened == ["told"]
