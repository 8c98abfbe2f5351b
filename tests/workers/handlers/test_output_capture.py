"""What a handler logs and prints is kept with its run, and still goes where it went before."""

import asyncio
import contextlib
import io
import logging
import os
import sys
import threading
import warnings

import pytest

from holdfast.workers.handlers import output_capture
from holdfast.workers.handlers.log_buffer import StoreScribe

user_log = logging.getLogger("shop.mail")


def lines(hf, job, number=-1):
    run = job.runs()[number]
    return [(kept.line.stream, kept.line.level, kept.line.text) for kept in hf.engine.store.logs.read(run.run_id)]


def work(hf):
    hf.work(concurrency=4, until_idle=True)


def test_records_prints_and_the_task_log_are_kept_in_order_with_their_run(hf, clock):
    @hf.task
    def talks(name: str) -> None:
        user_log.warning("mail to %s", name)
        print("printed", name)
        print("two\nlines", file=sys.stderr)
        hf.current.log.info("sent %s", name)

    jobs = [talks.enqueue("ann"), talks.enqueue("bob")]
    work(hf)
    for job, name in zip(jobs, ("ann", "bob"), strict=True):
        assert lines(hf, job) == [
            ("log", "WARNING", f"mail to {name}"),
            ("stdout", "", f"printed {name}"),
            ("stderr", "", "two"),
            ("stderr", "", "lines"),
            ("log", "INFO", f"sent {name}"),
        ]
    assert hf.engine.store.logs.read(jobs[0].runs()[0].run_id)[0].line.at.startswith("2026-01-01T00:00:00")


def test_coroutines_that_talk_at_once_keep_their_lines_apart(hf):
    @hf.task
    async def talks(name: str) -> None:
        for n in range(20):
            print(name, n)
            await asyncio.sleep(0)
            await asyncio.to_thread(user_log.error, "%s %s", name, n)

    jobs = [talks.enqueue(name) for name in ("a", "b", "c")]
    work(hf)
    for job, name in zip(jobs, ("a", "b", "c"), strict=True):
        kept = lines(hf, job)
        assert [text for stream, _, text in kept if stream == "stdout"] == [f"{name} {n}" for n in range(20)]
        assert [text for stream, _, text in kept if stream == "log"] == [f"{name} {n}" for n in range(20)]


def test_a_traceback_is_part_of_its_record(hf):
    @hf.task
    def fails() -> None:
        try:
            int("broken")
        except ValueError:
            hf.current.log.exception("it went wrong")

    job = fails.enqueue()
    work(hf)
    texts = [text for _, _, text in lines(hf, job)]
    assert texts[0] == "it went wrong"
    assert texts[-1] == "ValueError: invalid literal for int() with base 10: 'broken'"


def test_a_last_line_without_end_is_kept_too(hf):
    @hf.task
    def talks() -> None:
        print("no end", end="")

    job = talks.enqueue()
    work(hf)
    assert lines(hf, job) == [("stdout", "", "no end")]


def test_lines_of_a_handler_that_had_to_be_released_are_kept_as_far_as_they_came(hf):
    said, go = threading.Event(), threading.Event()

    @hf.task
    def talks() -> None:
        print("whole")
        print("half", end="")
        said.set()
        assert go.wait(20)

    job = talks.enqueue()
    w = hf.worker(concurrency=1)
    w.start()
    assert said.wait(20)
    w.stop()
    assert w.join(20)
    go.set()
    assert job.status == "QUEUED"
    assert lines(hf, job) == [("stdout", "", "whole"), ("stdout", "", "half")]


def test_what_is_printed_is_still_seen_and_the_streams_are_given_back(hf, capsys):
    @hf.task
    def talks() -> None:
        print("for both")
        user_log.warning("nobody listens otherwise")

    talks.enqueue()
    before = sys.stdout, sys.stderr, list(logging.getLogger().handlers)
    work(hf)
    assert (sys.stdout, sys.stderr, logging.getLogger().handlers) == before
    assert capsys.readouterr().out == "for both\n"


def test_a_warning_nobody_else_hears_is_shown_as_logging_would(capfd, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    output_capture.begin()
    try:
        user_log.info("not this")
        user_log.warning("but this")
        heard = logging.NullHandler()
        user_log.addHandler(heard)
        user_log.warning("this was heard")
        user_log.removeHandler(heard)
    finally:
        output_capture.end()
    assert capfd.readouterr().err == "but this\n"


def test_a_record_written_to_the_wrapped_stream_is_not_kept_twice(hf):
    @hf.task
    def talks() -> None:
        handler = logging.StreamHandler(sys.stderr)
        user_log.addHandler(handler)
        user_log.error("once")
        user_log.removeHandler(handler)

    job = talks.enqueue()
    work(hf)
    assert lines(hf, job) == [("log", "ERROR", "once")]


def test_a_fork_of_a_handler_is_free_to_talk_whatever_locks_were_held(hf, capfd):
    """Its locks have no owner there; a fork that waited for one would wait for ever."""

    @hf.task
    def forks() -> int:
        me, codes = hf.current, []
        locks = (me.notes._lock, me.notes._scribe._lock, w.slots._lock)
        held, done = threading.Event(), threading.Event()

        def hold():
            for lock in locks:
                lock.acquire()
            held.set()
            assert done.wait(20)
            for lock in locks:
                lock.release()

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(20)
        child = os.fork()
        if child == 0:
            try:
                print("from the fork", flush=True)
                user_log.warning("from the fork")
                me.progress(1)
                os._exit(7)
            finally:
                os._exit(8)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        done.set()
        holder.join()
        return codes[0]

    job = forks.enqueue()
    w = hf.worker(concurrency=1, until_idle=True)
    w.start()
    assert w.join(20)
    assert job.result(0) == 7
    assert lines(hf, job) == []
    assert "from the fork" in capfd.readouterr().out


def test_a_record_that_cannot_be_formatted_fails_no_run(hf, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @hf.task
    def talks() -> int:
        user_log.error("%d", "no number")
        return 1

    job = talks.enqueue()
    work(hf)
    assert job.result(0) == 1


def test_streams_that_are_missing_or_replaced_meanwhile_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    output_capture.begin()
    assert sys.stdout is None
    theirs = object()
    monkeypatch.setattr(sys, "stderr", theirs)
    output_capture.end()
    assert sys.stderr is theirs


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


def unread():
    """Give a pipe that nobody reads any more."""
    out, into = os.pipe()
    os.close(out)
    return os.fdopen(into, "w", buffering=1, encoding="utf-8")


def ascii_only():
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


@pytest.mark.parametrize("stream", [closed, unread, ascii_only])
def test_a_stream_that_takes_nothing_any_more_fails_no_run(hf, monkeypatch, stream):
    @hf.task(max_attempts=1)
    def talks() -> None:
        print("über", flush=True)
        print("and out")

    broken = stream()
    monkeypatch.setattr(sys, "stdout", broken)
    job = talks.enqueue()
    work(hf)
    monkeypatch.undo()
    with contextlib.suppress(OSError):
        broken.close()
    assert (job.status, lines(hf, job)) == ("COMPLETED", [("stdout", "", "über"), ("stdout", "", "and out")])


def test_outside_a_run_a_stream_fails_as_it_always_did(monkeypatch):
    monkeypatch.setattr(sys, "stdout", closed())
    output_capture.begin()
    try:
        with pytest.raises(ValueError, match="closed file"):
            print("nobody's")
    finally:
        output_capture.end()


def test_a_warning_of_pythons_own_is_a_line_of_stderr(hf):
    @hf.task
    def warns() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *rest: print(message, file=sys.stderr)
            warnings.warn("old ways", stacklevel=1)

    job = warns.enqueue()
    work(hf)
    assert lines(hf, job) == [("stderr", "", "old ways")]


def test_lines_are_there_while_the_handler_still_runs(hf, clock):
    said, go = threading.Event(), threading.Event()

    @hf.task
    def talks() -> None:
        hf.current.log.info("half way")
        said.set()
        assert go.wait(20)

    job = talks.enqueue()
    w = hf.worker(concurrency=1)
    output_capture.begin()
    try:
        while w.pump.cycle():
            pass
        assert said.wait(20)
        clock.advance(1)
        w.pump.cycle()
        assert lines(hf, job) == [("log", "INFO", "half way")]
    finally:
        output_capture.end()
        go.set()
        w.slots.close()


@pytest.mark.parametrize("failure", [OSError("disk"), RuntimeError("a bug")])
def test_a_store_that_takes_no_lines_fails_no_run_and_later_lines_say_how_many_are_missing(hf, monkeypatch, failure):
    @hf.task
    def talks(n: int) -> int:
        for at in range(n):
            print("line", at)
        return n

    def refuse(found):
        raise failure

    with monkeypatch.context() as broken:
        broken.setattr(hf.engine.store.logs, "add", refuse)
        first = talks.enqueue(3)
        w = hf.worker(concurrency=1, until_idle=True)
        w.start()
        assert w.join(20)
    assert first.result(0) == 3
    assert lines(hf, first) == []


def test_a_run_is_told_how_many_of_its_lines_are_missing(hf, clock):
    scribe = StoreScribe(hf.engine.store, lambda: hf.engine.look().now, lambda: None)
    for n in range(10_005):
        scribe.line("r", "stdout", "", f"{n}")
    scribe.flush()
    kept = hf.engine.store.logs.read("r", limit=20_000)
    assert len(kept) == 10_001
    assert kept[-1].line.text == "… 5 lines are missing here: the store could not take them in time"
