"""What one execution may say is bounded: a line, its lines, its artifacts. What does not fit is named, not silent."""

import os
import threading
from hashlib import sha256

import msgspec
import pytest

from holdfast.errors import InvalidValue
from holdfast.model.artifacts import Artifact
from holdfast.model.ids import RunId
from holdfast.model.logs import MAX_LINE, MAX_LINES
from holdfast.model.workers import Progress
from holdfast.workers.handlers.artifacts import MAX_COPIED
from holdfast.workers.handlers.run_reporter import RunNotes


class Scribe:
    def __init__(self):
        self.lines = []
        self.blobs = {}

    def line(self, run_id, stream, level, text):
        self.lines.append((run_id, stream, level, text))

    def put(self, content):
        digest = sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest


@pytest.fixture
def scribe():
    return Scribe()


@pytest.fixture
def notes(scribe):
    return RunNotes(RunId("r"), scribe)


def texts(scribe):
    return [text for *_, text in scribe.lines]


def test_pieces_of_a_line_become_one(notes, scribe):
    for piece in ("a", "b\nc", "", "\r\n", "\n", "d"):
        notes.write("stdout", piece)
    notes.write("stderr", "other\n")
    notes.end()
    notes.end()
    assert scribe.lines == [
        ("r", "stdout", "", "ab"),
        ("r", "stdout", "", "c"),
        ("r", "stdout", "", ""),
        ("r", "stderr", "", "other"),
        ("r", "stdout", "", "d"),
    ]


def test_a_line_that_was_written_over_is_kept_as_it_was_last_seen(notes, scribe):
    for piece in ("10 %\r", "20 %\r", "99 %", "\rdone\n", "a\r\n", "b\rc\r\n", "d\r", "\n"):
        notes.write("stdout", piece)
    assert texts(scribe) == ["done", "a", "c", "d"]


def test_a_bar_that_never_ends_its_line_makes_no_lines(notes, scribe):
    for n in range(10_000):
        notes.write("stderr", f"\r{n} of 10000")
    assert scribe.lines == []
    notes.end()
    assert texts(scribe) == ["9999 of 10000"]


def test_a_long_line_is_cut_at_its_limit_and_says_so(notes, scribe):
    notes.say("log", "INFO", "ä" * MAX_LINE)
    (text,) = texts(scribe)
    assert len(text.encode()) <= MAX_LINE
    assert text.endswith(" … 16,384 bytes, cut")


def test_a_line_that_never_ends_does_not_fill_the_memory(notes, scribe):
    for _ in range(100):
        notes.write("stdout", "x" * 1000)
    assert len(scribe.lines) >= 10
    assert all(len(text) <= MAX_LINE for text in texts(scribe))


def test_beyond_its_limit_a_run_gets_one_marker_and_no_more(notes, scribe):
    for _ in range(300):
        notes.say("log", "INFO", "x" * MAX_LINE)
    assert sum(len(text.encode()) for text in texts(scribe)) <= MAX_LINES + MAX_LINE
    assert texts(scribe)[-1] == "… 1,048,576 bytes are kept of a run's lines; the rest is left out"
    assert len(set(texts(scribe))) == 2


def test_text_that_cannot_be_encoded_is_kept_escaped(notes, scribe):
    notes.say("log", "INFO", "\ud800")
    assert texts(scribe) == ["\\ud800"]


def test_a_small_file_is_copied_and_described(notes, scribe, tmp_path):
    path = tmp_path / "report.csv"
    path.write_bytes(b"a,b\n")
    kept = notes.keep(str(path), None, None)
    digest = sha256(b"a,b\n").hexdigest()
    assert kept == Artifact("report.csv", 4, digest, "text/csv")
    assert scribe.blobs == {digest: b"a,b\n"}
    artifacts, progress = notes.reported()
    assert msgspec.json.decode(artifacts) == [
        {"name": "report.csv", "size": 4, "sha256": digest, "media_type": "text/csv"}
    ]
    assert bytes(progress) == b"null"


def test_a_large_file_stays_where_it_is(notes, scribe, tmp_path):
    path = tmp_path / "film"
    with path.open("wb") as file:
        file.truncate(MAX_COPIED + 1)
    kept = notes.keep(str(path), "the film", "video/mp4")
    assert (kept.name, kept.size, kept.media_type, kept.path) == ("the film", MAX_COPIED + 1, "video/mp4", str(path))
    assert kept.sha256 == sha256(bytes(MAX_COPIED + 1)).hexdigest()
    assert scribe.blobs == {}


def test_what_is_no_file_is_refused(notes, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    odd = tmp_path / "\udcff"
    odd.touch()
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe", odd):
        with pytest.raises(InvalidValue):
            notes.keep(str(path), None, None)
    (tmp_path / "file").touch()
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(InvalidValue, match="name"):
            notes.keep(str(tmp_path / "file"), name, None)
    assert notes.artifacts == ()


def test_an_artifact_is_named_like_a_file_and_never_like_a_path(notes, tmp_path):
    """Whoever saves it as `folder / artifact.name` finds it in that folder."""
    (tmp_path / "file").touch()
    for name in ("../outside", "/etc/passwd", "a/b", ".", ".."):
        with pytest.raises(InvalidValue, match="name"):
            notes.keep(str(tmp_path / "file"), name, None)
    assert notes.keep(str(tmp_path / "file"), "..hidden", None).name == "..hidden"


def test_a_run_has_at_most_200_artifacts(notes, tmp_path):
    (tmp_path / "file").touch()
    for n in range(200):
        notes.keep(str(tmp_path / "file"), f"f{n}", None)
    with pytest.raises(InvalidValue, match="at most 200"):
        notes.keep(str(tmp_path / "file"), None, None)
    assert len(notes.artifacts) == 200


def test_a_list_of_artifacts_never_outgrows_its_record(notes, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.workers.handlers.run_reporter.MAX_LIST", 250)
    (tmp_path / "file").touch()
    notes.keep(str(tmp_path / "file"), "a", None)
    with pytest.raises(InvalidValue, match="too long"):
        notes.keep(str(tmp_path / "file"), "b" * 200, None)
    assert [one.name for one in notes.artifacts] == ["a"]


def test_a_report_refused_for_what_was_left_behind_is_sent_without_it(hf):
    """Nothing we know of is refused so; should it happen, neither the worker nor the job pays for it."""

    @hf.task(max_attempts=1)
    def works() -> int:
        hf.current.notes.advance(Progress(message="x" * 9000))
        return 1

    job = works.enqueue()
    hf.work(until_idle=True)
    (run,) = job.runs()
    assert (run.status, job.result(0)) == ("COMPLETED", 1)
    assert bytes(run.progress) == b"null"


def test_progress_and_artifacts_are_recorded_with_the_run_whatever_ended_it(hf, tmp_path):
    (tmp_path / "out").write_bytes(b"so far")

    @hf.task(max_attempts=1)
    def works(fails: bool) -> str:
        me = hf.current
        me.progress(1, 4)
        me.progress(2, 4, "x" * 300, data={"page": 7})
        me.artifact(tmp_path / "out")
        if fails:
            raise ValueError("broken")
        return "done"

    for job in (works.enqueue(False), works.enqueue(True)):
        hf.work(until_idle=True)
        (run,) = job.runs()
        progress = msgspec.json.decode(run.progress, type=Progress)
        assert (progress.fraction, progress.done, progress.total, len(progress.message)) == (0.5, 2, 4, 200)
        assert bytes(progress.data) == b'{"page":7}'
        (artifact,) = msgspec.json.decode(run.artifacts, type=list[Artifact])
        assert hf.engine.store.blobs.get(artifact.sha256) == b"so far"


def test_a_progress_that_makes_no_sense_fails_nothing(hf):
    seen = []

    @hf.task
    def works() -> None:
        me = hf.current
        for done, total in ((float("nan"), None), (5, 0), (-1, 2), (float("inf"), 3)):
            me.progress(done, total)
            seen.append(me.notes.progress.fraction)
        me.progress(0.5, data="x" * 5000)
        me.progress(0.25, data=object())
        deep = []
        for _ in range(63):
            deep = [deep]
        me.progress(0.25, data=deep)  # as deep as a payload may be, and then one more

    job = works.enqueue()
    hf.work(until_idle=True)
    (run,) = job.runs()
    assert run.status == "COMPLETED"
    assert seen == [None, 1.0, 0.0, None]
    assert msgspec.json.decode(run.progress) == {"fraction": 0.25}
    texts = [kept.line.text for kept in hf.engine.store.logs.read(run.run_id)]
    assert "progress: data of more than 4096 bytes is left out" in texts
    assert any("data: object of type object cannot be encoded as JSON" in text for text in texts)


def test_a_handler_knows_when_it_will_be_stopped(hf, clock):
    seen = []

    @hf.task(timeout=30)
    def works() -> None:
        seen.append(hf.current.deadline)

    @hf.task
    def boundless() -> None:
        seen.append(hf.current.deadline)

    start = clock.now()
    works.enqueue()
    hf.work(until_idle=True)
    boundless.enqueue()
    hf.work(until_idle=True)
    assert [None if at is None else (at - start).total_seconds() for at in seen] == [30, None]


def test_lines_of_several_threads_are_whole(notes, scribe):
    def talk(name):
        for _ in range(200):
            notes.say("log", "INFO", name * 50)

    threads = [threading.Thread(target=talk, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scribe.lines) == 600
    assert {len(set(text)) for text in texts(scribe)} == {1}
