"""A coordinator has one heap for all threads, and large pieces that it no longer needs go back to the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from holdfast import Holdfast
from holdfast.web.server import malloc

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps of threads are those of glibc")

#: Has eight threads hold much memory at once, and counts the heaps it came from.
COUNTING = """
import ctypes, sys, threading
from holdfast.web.server.malloc import keep_small
kept = keep_small() if sys.argv[1] == "share" else None
together, done = threading.Barrier(9), threading.Event()
def hold():
    held = [bytearray(20_000) for _ in range(100)]
    together.wait()
    done.wait()
threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
together.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
done.set()
print(kept)
"""


def heaps(tmp_path, *, share, **env):
    place = tmp_path / "heaps.xml"
    env = {**{name: value for name, value in os.environ.items() if "MALLOC" not in name}, **env}
    command = [sys.executable, "-c", COUNTING, "share" if share else "leave", str(place)]
    said = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    return place.read_text().count("<heap nr="), said


def test_threads_that_share_a_heap_have_no_others(tmp_path):
    alone, _ = heaps(tmp_path, share=False)
    assert alone > 1, "or there would be nothing to share"
    assert heaps(tmp_path, share=True) == (1, "True")


@pytest.mark.parametrize("decided", [{"MALLOC_ARENA_MAX": "3"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=3"}])
def test_an_operator_who_has_decided_how_many_there_are_is_not_overruled(tmp_path, decided):
    assert heaps(tmp_path, share=True, **decided) == (3, "False")


def test_other_settings_of_the_c_library_are_no_such_decision(tmp_path):
    assert heaps(tmp_path, share=True, GLIBC_TUNABLES="glibc.rtld.nns=4") == (1, "True")


#: Has the bound move up as a large piece is given back, then takes and gives back others: says what is left of them.
LARGE = """
import ctypes, sys
from holdfast.web.server.malloc import keep_small
if sys.argv[1] == "keep":
    keep_small()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
class Info(ctypes.Structure):  # its first field is the size of the heap
    _fields_ = [("arena", ctypes.c_size_t), ("others", ctypes.c_size_t * 9)]
libc.mallinfo2.restype = Info
libc.free(libc.malloc(8 << 20))
before = libc.mallinfo2().arena
pieces, small = [], []
for _ in range(20):
    pieces.append(libc.malloc(1 << 20))
    small.append(libc.malloc(1000))
for piece in pieces:
    libc.free(piece)
print(libc.mallinfo2().arena - before)
"""


def left_behind(how):
    env = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", LARGE, how]
    return int(subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_large_pieces_between_small_ones_go_back_to_the_system():
    assert left_behind("leave") > 15 << 20, "or there would be nothing to mend"
    assert left_behind("keep") < 1 << 20


def test_a_c_library_without_that_setting_is_left_as_it_is(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda _name: object())
    assert not malloc.keep_small()


#: What glibc reserves for a heap of threads, and where it begins: at a multiple of that.
RESERVED = 64 << 20


def heaps_of_threads(pid):
    with open(f"/proc/{pid}/maps", encoding="ascii") as file:  # noqa: PTH123 - no file of a disk
        lines = [line.split() for line in file]
    begins = [int(line[0].partition("-")[0], 16) for line in lines if line[1] == "rw-p" and len(line) == 5]
    return [begin for begin in begins if begin % RESERVED == 0]


@pytest.mark.parametrize("decided", [{}, {"MALLOC_ARENA_MAX": "3"}])
def test_a_coordinator_at_work_has_one_heap_unless_told_otherwise(tmp_path, decided):
    env = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    env |= {"HOLDFAST_STATE_DIR": str(tmp_path / "state"), **decided}
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", "serve", "--port", "0"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as serving:
        url = serving.stderr.readline().split()[0]
        with Holdfast(url) as hf:
            task = hf.task(name="noop")(print)
            jobs = task.enqueue_many([()] * 200)
            assert all(job.status == "QUEUED" for job in jobs[:20])
        found = heaps_of_threads(serving.pid)
        serving.terminate()
        serving.communicate(timeout=60)
    assert bool(found) == bool(decided)
