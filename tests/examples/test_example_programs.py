"""Every example does what its README says: run as a program, in a directory of its own, and judged by its effect."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast, open_store

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted({program.relative_to(EXAMPLES).parts[0] for program in EXAMPLES.glob("*/**/*.py")})


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_is_short_explained_listed_and_run_by_a_test(name):
    assert (EXAMPLES / name / "README.md").read_text().startswith("# ")
    programs = (EXAMPLES / name).glob("**/*.py")
    assert all(len(program.read_text().splitlines()) < 120 for program in programs)
    assert name in (EXAMPLES / "README.md").read_text()
    assert any(f'"{name}"' in test.read_text() for test in Path(__file__).parent.glob("test_*.py"))


def test_examples_are_typed_as_strictly_as_the_project(tmp_path):
    """But for decorators of web frameworks, and for calls that block, which checkers take for awaited."""
    names = [name for name in FOLDERS if not name.endswith("_app") and name != "plain_workflow"]
    for name in names:
        (tmp_path / f"{name}.py").write_text((EXAMPLES / name / "app.py").read_text())
    options = ["--strict", "--cache-dir", os.devnull]  # nobody would read it again
    command = [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in names)]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout


def test_hello(example):
    assert example("hello")() == ["COMPLETED Hello, world!"]


def test_thumbnails_are_whole_pictures_and_their_progress_stays(example, tmp_path):
    told = example("thumbnails")("3")
    assert told == [
        f"3 of 3: picture-{number}-32.png, picture-{number}-64.png, picture-{number}-128.png" for number in range(3)
    ]
    files = sorted((tmp_path / "thumbnails").iterdir())
    assert len(files) == 9
    assert {size_of(file.read_bytes()) for file in files} == {(32, 32), (64, 64), (128, 128)}


def size_of(png):
    """Read a PNG's size, checking the sum of every chunk on the way."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds = 8, []
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        chunk, (total,) = png[at + 4 : at + 8 + length], struct.unpack_from(">I", png, at + 8 + length)
        assert zlib.crc32(chunk) == total
        kinds.append(chunk[:4])
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    return struct.unpack_from(">II", png, 16)


def test_words_are_counted_side_by_side_and_added_up_once(example):
    assert example("word_count")() == ["PARTIAL", "PARTIAL: the 4, fox 2, dog 2; 1 text could not be read"]


def test_emails_are_tried_again_sent_once_and_not_to_nowhere(example):
    assert example("emails")() == [
        "one job: True",
        "sent: [('ada@example.com', 'Welcome!')] attempts: 2",
        "FAILED 'not an address' is no address",
    ]


def test_cpu_work_runs_in_processes_that_may_crash_and_hang(example):
    primes, crashed, hung = example("cpu_in_processes")()
    assert primes == "primes: [25, 168, 1229, 9592, 78498]"
    assert re.fullmatch(r"FAILED .*SIGABRT.*", crashed)
    assert re.fullmatch(r"FAILED .*timeout of 1 s.*", hung)


def test_the_nightly_clean_up_is_one_chain_although_it_was_started_twice(example, tmp_path):
    assert example("nightly_cleanup")() == [
        "night 1: 3 files removed",
        "night 2: 0 files removed",
        "night 3: 0 files removed",
        "jobs: 3",
    ]
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_fan_out_is_done_to_the_last_job(example):
    first, *_, last = example("fan_out_10k")("2000")
    assert first == "2000 jobs are durable"
    assert last == f"sum: {sum(n * n for n in range(2000))}"


def test_a_chain_loads_each_batch_once(example):
    run = example("etl_chain")
    rows = ["monday 3 apples", "monday 5 pears", "tuesday 2 apples"]
    assert run() == rows
    assert run() == rows, "the same ids meet the same jobs"


def test_a_webhook_is_answered_when_it_is_durable_and_a_repeat_meets_the_first(example, tmp_path):
    example("webhook_in")
    server = subprocess.Popen([sys.executable, "app.py", "serve", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1]
        status, first = post(url, b'{"id": "evt_1", "invoice": 7}')
        assert status == 202
        assert post(url, b'{"id": "evt_1", "invoice": 7}') == (200, first)
        assert post(url, b"not json")[0] == 400
        assert post(url, b'{"invoice": 7}')[0] == 400
        assert post(url, b"[]")[0] == 400
    finally:
        server.kill()
        server.communicate()
    worker = [sys.executable, "-c", "from app import hf; hf.work(until_idle=True)"]
    subprocess.run(worker, cwd=tmp_path, check=True, timeout=60)
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        (job,) = hf.jobs()
        assert (job.id, msgspec.json.decode(job.refresh().result)) == (first["job"], "invoice 7 is paid")


def test_a_receiver_is_told_of_each_run_and_acts_once(example):
    *told, last = example("webhook_out")()
    assert sorted(told) == [
        "job.run.completed because of nothing",
        "job.run.failed because of ZeroDivisionError: division by zero",
    ]
    assert last == "2 delivered, 2 acted on"


def post(url, body):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_a_payment_that_runs_twice_is_charged_once_and_a_late_writer_is_refused(example):
    assert example("payments")() == ["paid: 1999 runs: 2 charges: 1", "a late writer is refused: True"]


def test_twenty_changes_give_one_rebuild_of_the_newest_version(example):
    assert example("debounce")() == ["document 1 as of version 20", "document 2 as of version 1"]


def test_an_order_and_its_job_are_both_there_or_neither(example, tmp_path):
    assert example("outbox")() == [
        "second was refused: CHECK constraint failed: cents > 0",
        "orders: ['first', 'third']",
        "mail: ['order first is confirmed', 'order third is confirmed']",
    ]
    store = open_store(f"sqlite:{tmp_path / 'shop.db'}")
    assert store.check() == []
    store.close()


def test_commands_run_with_their_words_as_they_are(example, tmp_path):
    assert example("shell_job")()[-4:] == [
        "archived: notes; rm -rf $HOME/one.txt",
        "lines: 2",
        "FAILED with exit code 3",
        "it said: ['looking']",
    ]
    assert (tmp_path / "notes.tar").exists()


def test_a_rate_holds_over_every_window(example, tmp_path):
    (told,) = example("rate_limited_api")()
    assert told == "26 calls for 4 customers", "25 jobs, one of them sent away and asked again"
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        runs = [run for job in hf.jobs() for run in job.runs()]
    starts = sorted(datetime.fromisoformat(run.started_at).timestamp() for run in runs)
    assert len(starts) == 26
    # Ten in any second: the eleventh start is at least a second after the first of them.
    assert all(later - first >= 1 for first, later in zip(starts, starts[10:], strict=False))


def test_an_order_is_shipped_or_undone_however_often_the_program_runs(example):
    first = example("order_workflow")()
    assert first == [
        "order-a-1 waiting for the parcel service",
        "order-a-2 declined, and released",
        "order-a-1 shipped as parcel 7",
    ]
    assert example("order_workflow")() == first
