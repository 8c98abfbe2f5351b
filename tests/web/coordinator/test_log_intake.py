"""A coordinator keeps of what runs say what a worker would keep, whoever speaks; and only of runs that are there."""

from __future__ import annotations

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast.clock import SystemClock
from holdfast.engine.engine import Engine
from holdfast.errors import RunNotFound
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.model.logs import FULL, MAX_LINE, MAX_LINES, LogLine
from holdfast.model.times import stamp
from holdfast.stores.http.store import HttpStore
from holdfast.web.coordinator import log_intake

AT = "2026-01-06T10:15:30.123456Z"


@pytest.fixture
def run_id(store):
    """A run that goes on."""
    return _run(store, "a")


def _run(store, job_id):
    engine = Engine(store)
    engine.ask(Enqueue(jobs=(NewJob(job_id=job_id, job_type="t", params=msgspec.Raw(b"{}")),)))
    (grant,) = engine.ask(Lease(worker_id="w")).grants
    return grant.run_id


def _post(coordinator, path, body):
    return httpx2.post(f"{coordinator.url}/api/v1{path}", json=body, timeout=30)


def _said(run_id, **other):
    return [run_id, {"at": AT, "level": "INFO", "text": "hi", "stream": "log", **other}]


def _all(store, run_id):
    lines, after = [], 0
    while page := store.logs.read(run_id, after):
        after = page[-1].line_no
        lines += [one.line for one in page]
    return lines


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_line_that_is_too_long_is_cut_as_a_worker_cuts_it(coordinator, store, run_id):
    assert _post(coordinator, "/lines", {"lines": [_said(run_id, text="ä" * 500_000)]}).status_code == 204
    (line,) = _all(store, run_id)
    assert len(line.text.encode()) <= MAX_LINE
    assert line.text.endswith("ä … 1,000,000 bytes, cut")


@pytest.mark.parametrize("is_beat", [False, True], ids=["lines", "heartbeat"])
def test_of_a_run_that_says_too_much_the_rest_is_left_out_and_that_is_said_once(coordinator, store, run_id, is_beat):
    other = _run(store, "b")
    path = "/workers/w/heartbeat" if is_beat else "/lines"
    for _ in range(3):
        body = {"lines": [_said(run_id, text="x" * 8000)] * 100}
        assert _post(coordinator, path, body).status_code in (200, 204)
    assert _post(coordinator, path, {"lines": [_said(run_id), _said(other)]}).status_code in (200, 204)
    lines = _all(store, run_id)
    assert sum(len(line.text) + 1 for line in lines[:-1]) <= MAX_LINES
    assert [line.text for line in lines].count(FULL) == 1
    assert lines[-1] == LogLine(AT, "log", "", FULL)
    assert [line.text for line in _all(store, other)] == ["hi"]


def test_what_a_run_said_before_a_restart_counts(tmp_path):
    place = f"wal:{tmp_path / 'jobs'}"
    now = stamp(SystemClock().now())  # what is older is swept
    with running(place) as first:
        store = HttpStore.open(first.url)
        run_id = _run(store, "a")
        assert _post(first, "/lines", {"lines": [_said(run_id, at=now, text="x" * 8000)] * 131}).status_code == 204
        store.close()
    with running(place) as second:
        store = HttpStore.open(second.url)
        for _ in range(2):
            assert _post(second, "/lines", {"lines": [_said(run_id, at=now, text="y" * 8000)] * 2}).status_code == 204
        assert [line.text[0] for line in _all(store, run_id)] == ["x"] * 131 + [FULL[0]]
        store.close()
    with running(place) as third:
        store = HttpStore.open(third.url)
        assert _post(third, "/lines", {"lines": [_said(run_id, at=now, text="z")]}).status_code == 204
        assert _all(store, run_id)[-1].text == FULL
        store.close()


def test_a_forgotten_allowance_is_counted_again(coordinator, store, run_id, monkeypatch):
    monkeypatch.setattr(log_intake, "REMEMBERED", 1)
    other = _run(store, "b")
    for _ in range(3):
        body = {"lines": [_said(run_id, text="x" * 8000)] * 60 + [_said(other)]}
        assert _post(coordinator, "/lines", body).status_code == 204
    assert [line.text for line in _all(store, run_id)].count(FULL) == 1
    assert len(_all(store, other)) == 3


def test_a_page_of_lines_has_not_many_more_bytes_than_it_may(store, run_id, coordinator, monkeypatch):
    monkeypatch.setattr(log_intake, "PAGE_BYTES", 100)
    assert _post(coordinator, "/lines", {"lines": [_said(run_id, text="x" * 60)] * 5}).status_code == 204
    assert [len(store.logs.read(run_id, after)) for after in range(6)] == [1, 1, 1, 1, 1, 0]
    assert len(_all(store, run_id)) == 5


# --- what is no line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["junk", "", "2026\x1b[31m", "2026-01-06T10:15:30", "9" * 1000])
@pytest.mark.parametrize("path", ["/lines", "/workers/w/heartbeat"])
def test_a_line_without_a_time_is_refused_and_nothing_is_kept(coordinator, store, run_id, at, path):
    told = _post(coordinator, path, {"lines": [_said(run_id), _said(run_id, at=at)]})
    assert (told.status_code, told.json()["code"]) == (422, "invalid_value")
    assert _all(store, run_id) == []


def test_a_time_is_kept_in_the_house_format(coordinator, store, run_id):
    assert _post(coordinator, "/lines", {"lines": [_said(run_id, at="2026-01-06T11:15:30+01:00")]}).status_code == 204
    assert [line.at for line in _all(store, run_id)] == ["2026-01-06T10:15:30.000000Z"]


def test_a_level_is_short_and_cannot_steer_a_terminal(coordinator, store, run_id):
    lines = [_said(run_id, level=level) for level in ("NOTICE", "\x1b[31m\u202e", "x" * 5000, "\x1b" * 5000)]
    assert _post(coordinator, "/lines", {"lines": lines}).status_code == 204
    levels = [line.level for line in _all(store, run_id)]
    assert levels[0] == "NOTICE"
    assert all(level.isprintable() and len(level) <= 40 for level in levels)


@pytest.mark.parametrize("run_id", ["", "nobody", "x" * 100_000, "../../evil", "a\0b"])
def test_lines_of_a_run_that_is_not_there_are_refused_and_left_out_beside_others(coordinator, store, run_id):
    told = _post(coordinator, "/lines", {"lines": [_said(run_id)]})
    assert (told.status_code, told.json()["code"]) == (404, "run_not_found")
    assert len(told.content) < 2000
    there = _run(store, "a")
    assert _post(coordinator, "/lines", {"lines": [_said(run_id), _said(there)]}).status_code == 204
    assert len(_all(store, there)) == 1
    if len(run_id) < 100:
        assert store.logs.read(run_id) == []
    with pytest.raises(RunNotFound):
        store.logs.add([(run_id, LogLine(AT, "log", "INFO", "hi"))])


def test_half_a_character_of_a_line_travels_escaped(store, run_id):
    store.logs.add([(run_id, LogLine(AT, "stderr", "", "a\ud800b")), (run_id, LogLine(AT, "log", "INFO", "c"))])
    assert [line.text for line in _all(store, run_id)] == ["a\\ud800b", "c"]
