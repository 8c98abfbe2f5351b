"""What reads a class is made by one thread at a time, wherever a class is named at run time."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from holdfast import json_decoders

#: Classes that take a while to be looked at, read by many threads for the first time.
RACE = """
import sys, threading
import msgspec
from holdfast.json_decoders import reader_of

sys.setswitchinterval(1e-6)
for turn in range(40):
    inner = None
    for number in range(6):
        fields = [("x", int)] + ([("a", inner), ("b", list[inner]), ("c", dict[str, inner])] if inner else [])
        inner = msgspec.defstruct(f"C{turn}x{number}", [(name, kind, None) for name, kind in fields])
    together = threading.Barrier(8)

    def read(kind=inner):
        together.wait()
        MADE(kind).decode(b'{"x": 1, "a": {"x": 2}}')

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("read")
"""


def test_many_threads_that_read_a_class_for_the_first_time_do_not_end_the_process():
    done = subprocess.run(
        [sys.executable, "-c", RACE.replace("MADE", "reader_of")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


def test_what_reads_a_class_is_made_under_one_lock(monkeypatch):
    free, make = [], msgspec.json.Decoder

    def made(kind, **given):
        free.append(json_decoders._making.acquire(blocking=False))
        return make(kind, **given)

    monkeypatch.setattr(msgspec.json, "Decoder", made)
    assert json_decoders.reader_of(int).decode(b"1") == 1
    assert free == [False]


def test_what_json_cannot_tell_apart_is_refused():
    with pytest.raises(TypeError):
        json_decoders.reader_of(int | msgspec.defstruct("A", ["a"]) | msgspec.defstruct("B", ["b"]))
