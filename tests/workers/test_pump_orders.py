"""A worker in many orders of its inputs: no job is lost, run twice at once, or held by nobody. Defects are found."""

import logging
import os

import msgspec
import pytest
from pump_orders import Explored, Marked, Wrong

from holdfast.errors import StoreBusy
from holdfast.model.commands import Complete
from holdfast.workers import main_loop
from holdfast.workers.handlers.leased_job import Assignment
from holdfast.workers.handlers.outcome import Released
from holdfast.workers.main_loop import Pump
from holdfast.workers.slots import Slots

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: Inputs of one worker with one slot that are few enough to be tried in every order.
ENDINGS = {"step", "return", "drain", "kill", "bury", "begin", "meanwhile"}
TIMES = {"step", "return", "advance", "cancel"}
SEEDS = range(20_000) if SOAK else range(400)


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("inputs", "depth"), [(ENDINGS, 8 if SOAK else 6), (TIMES, 6 if SOAK else 4)], ids=["endings", "times"]
)
def test_worker_with_one_slot_keeps_every_job_in_every_order_of_inputs(inputs, depth, capsys):
    explored = Explored()
    explored.every(depth, size=1, jobs=2, workers=1, inputs=inputs)
    with capsys.disabled():
        print(f"\n{explored}")


@pytest.mark.parametrize(
    "options", [{"ahead": True}, {"ahead": False}, {"suspects": 2, "jobs": 5}], ids=["ahead", "not ahead", "suspects"]
)
def test_two_workers_keep_every_job_in_random_orders_of_inputs(options, capsys):
    explored = Explored()
    explored.some(SEEDS, 30, **options)
    with capsys.disabled():
        print(f"\n{explored}")


@pytest.mark.parametrize("ahead", [True, False])
def test_grant_that_ends_before_it_begins_is_not_charged_when_its_worker_dies(ahead):
    """A job is cancelled between its lease and its start, its worker dies before the report: found by this seed."""
    Explored().some([3395], 30, ahead=ahead)


# --- the checks can fail ----------------------------------------------------------------------------------------------


def drop_a_report(patch):
    collect = Slots.collect
    patch.setattr(Slots, "collect", lambda self: collect(self)[1:])


def forget_to_extend(patch):
    def renewed(self, sent_at, lease_s):
        self.lost_at = self.renew_at = sent_at + lease_s

    patch.setattr(Assignment, "renewed", renewed)


def complete_with_an_old_token(patch):
    made = main_loop.command_of

    def command_of(grant, outcome, notes=None):
        command = made(grant, outcome, notes)
        if isinstance(command, Complete):
            return Complete(job_id=command.job_id, token=command.token - 1, result=command.result)
        return command

    patch.setattr(main_loop, "command_of", command_of)


def lease_while_stopping(patch):
    patch.setattr(Pump, "_room", lambda self, held, now: self._slots.room())


def release_what_has_begun_as_if_it_had_not(patch):
    def release(self):
        self._outbox.extend((held, Released(begun=False)) for held in self._slots.held() if self._slots.forget(held))

    patch.setattr(Pump, "_release_waiting", release)


def free_a_slot_before_its_handler_has_ended(patch):
    settle = Slots.settle

    def settled(self, assignment, outcome):
        settle(self, assignment, outcome)
        self._busy -= 1

    patch.setattr(Slots, "settle", settled)


def forget_reports_when_the_store_is_busy(patch):
    send = Pump._send

    def sent(self, *what):
        try:
            send(self, *what)
        except StoreBusy:
            self._outbox.clear()
            raise

    patch.setattr(Pump, "_send", sent)


def begin_without_saying_so(patch):
    patch.setattr(Marked, "clear", lambda self, token: None)


def say_that_what_waits_has_begun(patch):
    patch.setattr(Marked, "receive", lambda self, worker, received, waiting: setattr(self, "received", received))


def give_waiting_jobs_up_without_a_word(patch):
    patch.setattr(Pump, "_release_waiting", lambda self: self._slots.withdraw())


def claim_to_hold_nothing(patch):
    lease = Pump._lease
    patch.setattr(Pump, "_lease", lambda self, *what: msgspec.structs.replace(lease(self, *what), holds=0))


def lease_beside_what_runs_alone(patch):
    patch.setattr(main_loop, "runs_alone", lambda held: False)
    claim_to_hold_nothing(patch)


DEFECTS = [
    drop_a_report,
    forget_to_extend,
    complete_with_an_old_token,
    lease_while_stopping,
    release_what_has_begun_as_if_it_had_not,
    free_a_slot_before_its_handler_has_ended,
    forget_reports_when_the_store_is_busy,
    begin_without_saying_so,
    say_that_what_waits_has_begun,
    give_waiting_jobs_up_without_a_word,
    claim_to_hold_nothing,
    lease_beside_what_runs_alone,
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_planted_defect_is_found(defect, monkeypatch):
    defect(monkeypatch)
    explored = Explored()
    with pytest.raises(Wrong) as found:
        explored.some(range(300), 30, suspects=1, jobs=4)
    assert "after these inputs" in str(found.value)
