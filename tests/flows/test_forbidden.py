"""What cannot be replayed is refused, with the line and with what to use instead."""

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from holdfast.errors import WorkflowNotAllowed
from holdfast.flows import face as hf
from holdfast.flows.forbidden import inside, is_collecting
from holdfast.testing.flows import World


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


def loop():
    return asyncio.get_running_loop()


WAYS = {
    "threading.Thread": (start_thread, "hf.step"),
    "run_in_executor": (in_executor, "hf.step"),
    "asyncio.to_thread": (to_thread, "hf.step"),
    "socket.socket": (open_socket, "hf.step"),
    "asyncio.open_connection": (connect, "hf.step"),
    "asyncio.start_server": (serve, "hf.step"),
    "subprocess.run": (run_command, "hf.step"),
    "os.system": (lambda: os.system("true"), "hf.step"),
    "create_subprocess_shell": (run_shell, "hf.step"),
    "create_subprocess_exec": (run_exec, "hf.step"),
    "time.sleep": (lambda: time.sleep(0), "asyncio.sleep"),  # noqa: TID251 - the mistake in question
    "add_signal_handler": (lambda: loop().add_signal_handler(signal.SIGUSR1, print), "hf.signal"),
    "call_soon_threadsafe": (lambda: loop().call_soon_threadsafe(print), "run.signal"),
    "set_task_factory": (lambda: loop().set_task_factory(None), "wrap"),
    "add_reader": (lambda: loop().add_reader(0, print), "hf.step"),
    "loop.stop": (lambda: loop().stop(), "return"),
    "getaddrinfo": (lambda: loop().getaddrinfo("localhost", 1), "hf.step"),
    "set_default_executor": (lambda: loop().set_default_executor(None), "hf.step"),
}


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

    world = World()
    text, location = world.run(world.workflow(main))
    assert instead in text
    assert "Nothing was done" in text
    assert location.startswith(("test_forbidden.py:", "threading.py", "subprocess.py", "socket.py"))


def test_a_running_loop_in_a_workflow_is_refused():
    async def main() -> str:
        coro = asyncio.sleep(0)
        try:
            asyncio.run(coro)
        except RuntimeError as problem:
            coro.close()
            return str(problem)
        return ""

    world = World()
    assert "running event loop" in world.run(world.workflow(main))


def test_outside_of_a_turn_nothing_is_refused():
    with inside():
        pass
    thread = threading.Thread(target=str)
    thread.start()
    thread.join()
    socket.socket().close()


def test_steps_and_activities_may_do_all_of_it():
    def work() -> int:
        thread = threading.Thread(target=str)
        thread.start()
        thread.join()
        socket.socket().close()
        return 1

    world = World()
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

    world = World()
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

    world = World()
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

    world = World()
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
        world = World()
        world.run(world.workflow(main))
    finally:
        hf.log.logger.removeHandler(handler)
    assert opened == ["told"]
