"""What people see: colour, glyphs and width, in unit and through a real pseudo-terminal."""

from __future__ import annotations

import io
import signal

import msgspec
import pytest
from pseudoterminal import Terminal, bare

from holdfast import Engine, open_store
from holdfast.cli.render import status_labels, tables
from holdfast.cli.render.terminal import Screen, safe, safe_lines, screen
from holdfast.cli.store_access.target import now
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.workers import WorkerInfo

PLAIN = Screen(is_terminal=False, can_redraw=False, colour=False, true_colour=False, light=False, unicode=True, width=0)


def output(*, tty=True, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    stream.isatty = lambda: tty
    return stream


# --- what can be shown ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "env", "tty", "colour"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_follows_the_option_then_the_environment_then_the_terminal(wish, env, tty, colour):
    assert screen(wish, output(tty=tty), env).colour is colour


def test_glyphs_are_ascii_where_the_locale_is_not_utf8():
    assert screen("auto", output(encoding="utf-8"), {}).glyph(status_labels.COMPLETED).endswith("✓\x1b[0m")
    for encoding in ("ascii", "iso-8859-1"):
        assert screen("never", output(encoding=encoding), {}).glyph(status_labels.COMPLETED) == "+"


def test_a_terminal_with_all_colours_gets_ours_for_its_surface():
    dark = screen("auto", output(), {"COLORTERM": "truecolor"})
    light = screen("auto", output(), {"COLORTERM": "24bit", "COLORFGBG": "0;15"})
    named = screen("auto", output(), {})
    assert "38;2;74;144;255" in dark.glyph(status_labels.RUNNING)
    assert "38;2;10;88;226" in light.glyph(status_labels.RUNNING)
    assert "\x1b[34m" in named.glyph(status_labels.RUNNING)


def test_every_status_and_every_way_to_wait_has_its_own_mark():
    ended = [status_labels.look_of(status) for status in (*JobStatus, *RunStatus)]
    waiting = [status_labels.look_of("QUEUED", code) for code in ("ready", "delayed", "queue_paused", "no_worker")]
    looks = {*ended, *waiting, status_labels.look_of("QUEUED", "delayed", 1)}
    assert len({look.glyph for look in looks}) == len({look.ascii for look in looks}) == len(looks)
    assert all(look.ascii.isascii() for look in looks)
    assert status_labels.look_of("QUEUED", "delayed", 1) is status_labels.BACKOFF


# --- text from outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🚀", "plain é 漢 🚀"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\u2028", "\\u2028"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(text, shown):
    assert safe(text) == shown


def test_lines_stay_lines_where_a_text_has_many():
    assert safe_lines("a\n\tb\x1b\nc") == ["a", "    b\\x1b", "c"]


# --- tables -----------------------------------------------------------------------------------------------------------

COLUMNS = (tables.Column("A"), tables.Column("N", right=True), tables.Column("TEXT"))


def test_a_table_has_no_borders_and_one_line_a_record():
    rows = [["x", "1", "short"], ["漢字", "100", "a long text that goes on"]]
    assert tables.lines(COLUMNS, rows, PLAIN) == [
        "A       N  TEXT",
        "x       1  short",
        "漢字  100  a long text that goes on",
    ]


def test_free_text_shrinks_on_a_terminal_and_nothing_else_does():
    terminal = PLAIN._replace(is_terminal=True, width=30)
    rows = [["an-id-that-stays", "1", "a text that is far too long"]]
    (_, line) = tables.lines(COLUMNS, rows, terminal)
    assert line == "an-id-that-stays  1  a text that…"
    assert tables.lines(COLUMNS, rows, terminal._replace(unicode=False))[1].endswith("a text th...")
    assert tables.lines(COLUMNS, rows, PLAIN)[1].endswith("far too long")


def test_text_is_cut_by_cells_not_by_characters():
    assert tables.shrink("漢字漢字", 5) == "漢字…"
    assert tables.width("e\u0301") == 1


def test_ids_show_as_many_characters_as_tell_them_apart():
    terminal = PLAIN._replace(is_terminal=True, width=80)
    assert tables.id_length(["0123456789", "0123456799"], terminal) == 9
    assert tables.id_length(["0123456789", "a123456799"], terminal) == tables.SHORTEST_ID
    assert tables.id_length(["job-1", "job-10"], terminal) == 6
    assert tables.id_length(["same-same-same", "same-same-same"], terminal) == 8
    assert tables.id_length([], terminal) == 0
    assert tables.id_length(["0123456789"], PLAIN) == 10


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (172_800, "2d")]
)
def test_ages_have_one_unit(seconds, shown):
    assert tables.age(seconds) == shown


# --- through a pseudo-terminal ----------------------------------------------------------------------------------------

IDS = ["01890000-aaaa-7000-8000-000000000001", "01890000-aaaa-7000-8000-000000000002", "01890000-bbbb-7000-8000-0"]


@pytest.fixture
def url(tmp_path):
    where = f"sqlite:{tmp_path / 'jobs'}"
    engine = Engine(open_store(where))
    engine.ask(Enqueue(jobs=tuple(NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(b"{}")) for job_id in IDS)))
    worker = WorkerInfo(worker_id="w", name="", host="far", pid=7, version="0.1.0", started_at=now(), last_seen=now())
    engine.store.workers.note(worker)
    engine.close()
    return where


def test_on_a_terminal_ids_are_short_and_statuses_coloured(url):
    text, code = Terminal(url, "jobs", "ls").end()
    assert code == 0
    assert "\x1b[90m○\x1b[0m" in text
    shown = [line.split()[2] for line in bare(text).splitlines()[1:]]
    assert shown == ["01890000-bbbb-7000-8000-0", IDS[1], IDS[0]], "the last character tells two of them apart"
    found, _ = Terminal(url, "jobs", "ls", "--limit", "1").end()
    assert "01890000" in found
    assert "01890000-" not in found


def test_on_a_narrow_terminal_lines_fit_and_ids_stay(url):
    text, _ = Terminal(url, "jobs", "ls", columns=75).end()
    assert all(tables.width(line) <= 75 for line in text.splitlines())
    assert all(job_id in text for job_id in IDS)
    assert "…" in text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_none_is_wanted(url, env):
    text, _ = Terminal(url, "jobs", "ls", **env).end()
    assert "○ QUEUED" in text
    assert "\x1b" not in text


def test_a_terminal_without_utf8_gets_ascii(url):
    text, code = Terminal(url, "jobs", "ls", PYTHONUTF8="0", PYTHONIOENCODING="ascii", NO_COLOR="1", columns=75).end()
    assert code == 0
    assert "o QUEUED" in text
    assert text.isascii()


def test_on_a_terminal_it_asks_before_it_ends_several_jobs(url):
    declined = Terminal(url, "jobs", "cancel", IDS[0], IDS[1])
    declined.until(r"Cancel 2 jobs: .*\? \[y/N\]: ")
    declined.keys("n\n")
    text, code = declined.end()
    assert (code, "Nothing was changed." in text) == (1, True)
    accepted = Terminal(url, "jobs", "bury", IDS[0])
    accepted.until(r"\[y/N\]: ")
    accepted.keys("y\n")
    assert accepted.end()[1] == 0
    text, code = Terminal(url, "jobs", "cancel", IDS[1], IDS[2], "--yes").end()
    assert (code, "[y/N]" in text) == (0, False)


def test_watching_redraws_when_something_happens(url):
    watching = Terminal(url, "jobs", "ls", "-w", "60", NO_COLOR="1", columns=160)
    watching.until(r"QUEUED .*next in queue")
    assert watching.text.startswith("\x1b[H")
    engine = Engine(open_store(url))
    engine.ask(Enqueue(jobs=(NewJob(job_id="new-one", job_type="work", params=msgspec.Raw(b"{}")),)))
    watching.until(r"\x1b\[H[^\x1b]*\x1b\[K[^\x1b]*new-one")
    engine.close()
    watching.process.send_signal(signal.SIGINT)
    assert watching.end()[1] == 130


def test_what_does_not_fit_the_screen_is_counted(url):
    engine = Engine(open_store(url))
    for n in range(30):
        engine.ask(Enqueue(jobs=(NewJob(job_id=f"job-{n}", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    watching = Terminal(url, "jobs", "ls", "-w", "60", NO_COLOR="1")
    watching.until(r"and 12 more lines")
    watching.process.send_signal(signal.SIGINT)
    watching.end()
    assert watching.text.count("QUEUED") == 21
