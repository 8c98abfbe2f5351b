"""`holdfast reservations`, and where else a reserved queue is seen, on real stores."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.cli.render import reservation_rows
from holdfast.cli.render.terminal import Screen
from holdfast.cli.store_access.target import now
from holdfast.model.commands import Lease, NewJob, Reserve, StartDirect
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import later


@pytest.fixture
def reserved(opened):
    """Reserve a queue, for nobody's process in particular."""

    def reserve(reservation_id="r1", queue="mail", **options):
        with opened() as engine:
            engine.ask(Reserve(reservation_id=reservation_id, queue=queue, reserved_by="the nightly import", **options))

    return reserve


def start(opened, job_id="d"):
    job = NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(b"{}"), queue="mail")
    with opened() as engine:
        engine.ask(StartDirect(reservation_id="r1", job=job, worker_id="here"))


def test_reservations_are_listed_with_their_holder_expiry_and_what_runs(holdfast, rows, opened, reserved):
    reserved("late", "other", ttl_s=3600)
    reserved()
    reserved("far", "mail", namespace="x")
    start(opened)
    first, second = rows("reservations", "ls")
    assert (first["reservation_id"], first["queue"], first["reserved_by"]) == ("r1", "mail", "the nightly import")
    assert (first["status"], first["holds"], first["job_id"]) == ("ACTIVE", True, "d")
    assert (second["reservation_id"], second["job_id"]) == ("late", None)
    assert first["expires_at"] < second["expires_at"]
    table = holdfast("reservations", "ls").stdout.splitlines()
    assert table[0].split() == ["ID", "QUEUE", "AGE", "EXPIRES", "BY", "STATE"]
    assert "the nightly import" in table[1]
    assert "left, runs job d" in table[1]
    assert holdfast("reservations", "ls", "-o", "ids", "--namespace", "x").stdout == "far\n"


def test_no_reservation_is_an_empty_list(holdfast, rows, filled):
    filled("a")
    assert rows("reservations", "ls") == []
    assert holdfast("reservations", "ls", "-o", "json").stdout == "[]\n"


def test_a_release_opens_the_queue(holdfast, rows, filled, opened, reserved):
    filled("a", queue="mail")
    reserved("0123456789-mine")
    told = holdfast("reservations", "release", "0123", "--dry-run")
    assert (told.exit_code, told.stderr) == (0, "Nothing was changed: --dry-run.\n")
    assert len(rows("reservations", "ls")) == 1
    told = holdfast("reservations", "release", "0123", "-o", "json")
    assert msgspec.json.decode(told.stdout) == {
        "reservation_id": "0123456789-mine",
        "queue": "mail",
        "status": "RELEASED",
    }
    with opened() as engine:
        assert len(engine.ask(Lease(worker_id="w", queues=("mail",))).grants) == 1
    assert rows("reservations", "ls") == []
    (ended,) = rows("reservations", "ls", "--all")
    assert (ended["status"], ended["holds"]) == ("RELEASED", False)
    assert "○ released at" in holdfast("reservations", "ls", "--all").stdout
    again = holdfast("reservations", "release", "0123456789-mine")
    assert (again.exit_code, again.stdout) == (0, "0123456789-mine  RELEASED\n")


def test_who_released_it_is_kept(holdfast, opened, reserved):
    reserved()
    holdfast("reservations", "release", "r1")
    with opened() as engine:
        last = [entry for entry in engine.store.feed(0) if b"reservation:released" in bytes(entry.event)]
    assert b'"actor":"cli:' in bytes(last[0].event)


def test_what_is_not_there_is_not_found_and_what_begins_two_is_told(holdfast, reserved):
    reserved("ab1", "a")
    reserved("ab2", "b")
    assert holdfast("reservations", "release", "x").exit_code == 3
    told = holdfast("reservations", "release", "ab")
    assert told.exit_code == 2
    assert "ab1, ab2" in told.stderr
    assert holdfast("reservations", "release", "ab1", "--namespace", "x").exit_code == 3
    assert holdfast("reservations", "release", "").exit_code == 2


def test_all_are_listed_newest_first_and_no_more_than_asked_for(rows, opened, reserved, holdfast):
    for number in range(3):
        reserved(f"r{number}", f"q{number}")
    assert [row["reservation_id"] for row in rows("reservations", "ls", "--all", "--limit", "2")] == ["r2", "r1"]
    assert [row["reservation_id"] for row in rows("reservations", "ls", "--limit", "2")] == ["r0", "r1"]


def test_a_queue_and_the_status_show_that_it_is_reserved(holdfast, rows, filled, reserved):
    filled("a", queue="mail")
    reserved()
    reserved("r2", "empty")
    by_name = {row["name"]: row for row in rows("queues", "ls")}
    assert by_name["mail"]["reservation"]["reservation_id"] == "r1"
    assert by_name["empty"]["reservation"]["reserved_by"] == "the nightly import"
    assert "‖ reserved by the nightly import until" in holdfast("queues", "ls").stdout
    status = rows("status")
    assert sorted(one["queue"] for one in status["reservations"]) == ["empty", "mail"]
    assert "reserved    empty, mail" in holdfast("status").stdout


def test_a_queue_shows_the_job_that_runs_alone_there(holdfast, rows, opened, reserved):
    reserved()
    start(opened)
    holdfast("reservations", "release", "r1")
    assert rows("queues", "show", "mail")["direct"] == "d"
    assert "job d runs directly" in holdfast("queues", "ls").stdout


def test_explain_names_the_holder_and_where_to_look(holdfast, rows, filled, reserved):
    filled("a", queue="mail")
    reserved()
    told = rows("explain", "a")
    assert (told["reason"]["code"], told["reason"]["holder"]) == ("reserved", "r1")
    page = holdfast("explain", "a").stdout
    assert "‖ QUEUED  queue mail is reserved by the nightly import until" in page
    assert "holdfast reservations ls" in page


def test_one_that_is_over_and_not_yet_ended_says_so():
    at = now()
    screen = Screen(
        is_terminal=False, can_redraw=False, colour=False, true_colour=False, light=False, unicode=True, width=80
    )
    held = Reservation("r", "mail", "me", later(at, -90), later(at, -30))
    line = reservation_rows.table([reservation_rows.Seen(held, None)], at, screen)[1]
    assert "⚠ over for 30s; holds nothing any more" in line
    record = reservation_rows.Seen(held, None).record(at)
    assert (record["status"], record["holds"]) == (ReservationStatus.ACTIVE, False)
