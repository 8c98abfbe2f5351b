"""`holdfast top`: on a pseudo-terminal with keys, in a pipe once, and its page for the room there is."""

from __future__ import annotations

import re
import signal
import subprocess

import msgspec
import pytest
from pseudoterminal import Terminal, bare

from holdfast import Engine, open_store
from holdfast.cli.commands.queues import QueueRow
from holdfast.cli.commands.top import pressed
from holdfast.cli.render.tables import width
from holdfast.cli.render.terminal import Screen
from holdfast.cli.render.top_page import SORTS, Wishes, page
from holdfast.cli.store_access.rates import Rates
from holdfast.cli.store_access.snapshot import Scene
from holdfast.cli.store_access.target import now
from holdfast.engine.views.workers import Held, Staff
from holdfast.model.commands import Enqueue, Lease, NewJob, PauseDispatch
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.records import Authority, Queue
from holdfast.model.times import Timestamp, later
from holdfast.model.workers import LiveRun, Progress, WorkerInfo
from holdfast.stores.protocol import Durability

AT = Timestamp("2026-01-06T10:15:30.000000Z")
PLAIN = Screen(is_terminal=False, can_redraw=False, colour=False, true_colour=False, light=False, unicode=True, width=0)
TERMINAL = PLAIN._replace(is_terminal=True, width=80)


def scene(*, queues=2, jobs=3, workers=1, **known):
    counts = dict.fromkeys((status.value for status in JobStatus), 0)
    settings = msgspec.structs.asdict(Queue("", ""))
    known_of = {field: settings.get(field) for field in QueueRow.__struct_fields__ if field != "counts"}
    rows = [
        QueueRow(**{**known_of, "name": f"queue-{n}"}, counts={**counts, "QUEUED": n * 10, "RUNNING": n})
        for n in range(queues)
    ]
    held = [
        Held(
            Job(
                job_id=f"job-{n:04}",
                job_type=f"task-{n % 2}",
                params=msgspec.Raw(b"{}"),
                created_at=AT,
                queue=f"queue-{n % 3}",
                worker_id="box:1:aa",
                token=n,
                lease_expires_at=later(AT, 20),
            ),
            later(AT, -60 * n - 5),
        )
        for n in range(jobs)
    ]
    about = {"host": "box", "pid": 1, "version": "0.1.0", "name": "", "started_at": AT, "last_seen": later(AT, -2)}
    staff = [
        Staff(WorkerInfo(worker_id=f"box:{n}:aa", slots=8, **about), held if n == 1 else []) for n in range(workers)
    ]
    return Scene(
        **{
            "at": AT,
            "seq": 7,
            "store": "sqlite:jobs.db",
            "durability": Durability.SYNC,
            "authority": Authority(),
            "rates": Rates(12.04, 11.5, 0.1, 2),
            "recovery": None,
            "queues": rows,
            "oldest_due": later(AT, -200),
            "running": held,
            "progress": {"job-0001": Progress(0.5, message="half"), "job-0002": Progress(0.9)},
            "staff": staff,
            **known,
        }
    )


def ids(lines):
    return re.findall(r"job-\d+", "\n".join(line for line in lines if "task-" in line))


def test_the_head_tells_rates_backlog_age_and_who_works():
    first, second, third, *_ = page(scene(), Wishes(), PLAIN)
    assert first == "10:15:30Z  dispatching  sqlite:jobs.db"
    assert second == "enqueued 12.0/s  completed 11.5/s  failed 0.1/s  lost leases 2/min"
    assert third == "waiting 10  oldest due 3m  running 1  workers 1 ready"


def test_what_is_not_as_it_should_be_is_said_first():
    known = {"authority": Authority(dispatch_paused=True, dispatch_reason="upgrade\x1b"), "oldest_due": None}
    first, *_ = page(scene(durability=Durability.RELAXED, **known), Wishes(), PLAIN)
    assert first == "10:15:30Z  dispatch is paused: upgrade\\x1b  durability relaxed  sqlite:jobs.db"


def test_the_fullest_queue_is_first_and_has_the_longest_bar():
    lines = page(scene(queues=3), Wishes(), PLAIN)
    at = next(number for number, line in enumerate(lines) if line.startswith("QUEUE"))
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["queue-2", "queue-1", "queue-0"]
    assert [line.count("█") for line in lines[at + 1 : at + 4]] == [12, 6, 0]


def test_running_jobs_are_sorted_as_wished():
    orders = {sort: ids(page(scene(), Wishes(sort=sort), PLAIN)) for sort in SORTS}
    assert orders == {
        "age": ["job-0002", "job-0001", "job-0000"],
        "progress": ["job-0002", "job-0001", "job-0000"],
        "task": ["job-0002", "job-0000", "job-0001"],
        "queue": ["job-0000", "job-0001", "job-0002"],
    }


def test_a_filter_keeps_what_contains_it_in_any_case():
    assert ids(page(scene(), Wishes(sought="TASK-1"), PLAIN)) == ["job-0001"]
    lines = page(scene(), Wishes(sought="queue-0"), PLAIN)
    assert "queue-0" in "\n".join(lines)
    assert "queue-1" not in "\n".join(lines)


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("lines", [8, 24, 50])
def test_a_page_fits_its_screen_and_says_what_it_leaves_out(columns, lines):
    shown = page(scene(queues=30, jobs=40, workers=20), Wishes(), TERMINAL._replace(width=columns), lines)
    assert len(shown) <= lines
    assert "q quit" in shown[-1] or lines == 8
    assert re.search(r"and \d+ more", "\n".join(shown)) or lines == 8
    if columns >= 80:
        assert max(width(line) for line in shown) <= columns


def test_a_pipe_gets_everything():
    assert len(ids(page(scene(jobs=100), Wishes(), PLAIN))) == 100


def test_without_utf8_everything_is_ascii():
    assert "\n".join(page(scene(), Wishes(), TERMINAL._replace(unicode=False), 30)).isascii()


def test_keys_filter_sort_and_give_up():
    wishes = Wishes()
    assert pressed(wishes, "s").sort == "progress"
    assert pressed(Wishes(sort=SORTS[-1]), "s").sort == SORTS[0]
    for key in "/se\x1fq":
        wishes = pressed(wishes, key)
    assert (wishes.sought, wishes.typing, wishes.sort) == ("seq", True, "age")
    assert pressed(wishes, "\x7f").sought == "se"
    kept = pressed(wishes, "\r")
    assert (kept.sought, kept.typing) == ("seq", False)
    assert pressed(kept, "\x1b").sought == ""
    assert pressed(wishes, "\x1b") == Wishes()
    assert pressed(Wishes(), "x") == Wishes()


# --- as a command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def busy(place, filled, opened, hire):
    filled("job-a", "job-b", "job-c", task="resize")
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
    hire(runs=(LiveRun("job-a", grant.run_id, "resize", now(), Progress(0.5, 1, 2, "half")),))


def test_in_a_pipe_it_tells_once(busy, holdfast, rows):
    told = holdfast("top")
    assert told.exit_code == 0
    assert "waiting 2" in told.stdout
    assert "[██████      ]  50 %  1 of 2  half" in told.stdout
    assert "q quit" not in told.stdout
    record = rows("top")
    assert (record["counts"]["QUEUED"], record["workers"]["ready"], record["oldest_due"] is not None) == (2, 1, True)
    assert record["running_jobs"][0]["progress"]["fraction"] == 0.5
    assert set(record["rates"]) == {"enqueued", "completed", "failed", "lost_leases"}
    assert record["staff"][0]["jobs"][0]["job_id"] == "job-a"


def test_a_namespace_is_watched_alone(busy, rows):
    record = rows("top", "--namespace", "other")
    assert (record["running_jobs"], record["staff"], record["queues"]) == ([], [], [])


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'jobs'}"


def new(*ids, task="resize"):
    return Enqueue(jobs=tuple(NewJob(job_id=job_id, job_type=task, params=msgspec.Raw(b"{}")) for job_id in ids))


def test_on_a_terminal_it_follows_the_store_heeds_keys_and_leaves_the_terminal_as_it_was(url):
    engine = Engine(open_store(url))
    engine.ask(new("job-a", "job-b"))
    engine.ask(Lease(worker_id="w"))
    watching = Terminal(url, "top", columns=100, NO_COLOR="1")
    watching.until(r"\x1b\[\?1049h")
    watching.until(r"job-a")
    watching.until(r"sort \(by age\)")
    engine.ask(PauseDispatch(reason="upgrade"))
    watching.until(r"dispatch is paused: upgrade")
    watching.keys("s")
    watching.until(r"sort \(by progress\)")
    watching.keys("/nothing\r")
    watching.until(r"only 'nothing'")
    watching.keys("\x1b[A")  # an arrow
    watching.keys("q")
    text, code = watching.end()
    engine.close()
    assert code == 0
    assert text.endswith("\x1b[?25h\x1b[?1049l") or "\x1b[?1049l" in text[text.rindex("only 'nothing'") :]


def test_on_a_terminal_colours_are_ours(url):
    engine = Engine(open_store(url))
    engine.ask(new("job-a"))
    engine.ask(Lease(worker_id="w"))
    engine.close()
    watching = Terminal(url, "top", COLORTERM="truecolor")
    watching.until(r"job-a")
    watching.keys("q")
    text, _ = watching.end()
    assert "38;2;74;144;255" in text
    assert "job-a" in bare(text)


def test_a_terminal_that_cannot_redraw_is_told_once(url):
    engine = Engine(open_store(url))
    engine.ask(new("job-a"))
    engine.close()
    text, code = Terminal(url, "top", TERM="dumb").end()
    assert (code, "\x1b" in text, "waiting 1" in text) == (0, False, True)


def test_an_interrupt_ends_it_with_the_screen_restored(url):
    engine = Engine(open_store(url))
    engine.ask(new("job-a"))
    engine.close()
    watching = Terminal(url, "top")
    watching.until(r"waiting")
    watching.process.send_signal(signal.SIGINT)
    text, code = watching.end()
    assert (code, "\x1b[?1049l" in text) == (130, True)


def test_a_store_that_is_not_there_is_told_on_the_ordinary_screen(tmp_path):
    text, code = Terminal(f"sqlite:{tmp_path / 'none'}", "top").end()
    assert (code, "there is no store at" in text, "Traceback" in text) == (3, True, False)
    assert text.rindex("there is no store") > text.rfind("\x1b[?1049l")


def test_another_size_of_the_window_is_followed(url):
    engine = Engine(open_store(url))
    engine.ask(new("job-a"))
    engine.close()
    watching = Terminal(url, "top", columns=60, NO_COLOR="1")
    watching.until(r"by age")
    drawn = len(watching.text)
    watching.resize(30, 30)
    watching.until(rf"(?s).{{{drawn}}}.*s sort")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", watching.text[drawn:])
    assert max(width(line) for line in shown.replace("\r", "").splitlines()) == 30
    watching.keys("q")
    assert watching.end()[1] == 0


def test_without_keys_it_goes_on_until_interrupted(url):
    engine = Engine(open_store(url))
    engine.ask(new("job-a"))
    engine.close()
    watching = Terminal(url, "top", stdin=subprocess.DEVNULL)
    watching.until(r"waiting")
    watching.process.send_signal(signal.SIGINT)
    assert watching.end()[1] == 130
