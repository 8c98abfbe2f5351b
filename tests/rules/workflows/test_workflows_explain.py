"""Why an instance is where it is: the first reason that holds, from records alone."""

import msgspec
import pytest

from holdfast.model.error_details import NONDETERMINISM
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.instances import (
    Execution,
    Instance,
    InstanceStatus,
    Message,
    Turn,
    execution_key,
    owner_of,
)
from holdfast.rules.workflows.explain import explain_instance

NOW = "2026-01-01T12:00:00.000000Z"
BEFORE = "2026-01-01T11:00:00.000000Z"
LATER = "2026-01-01T13:00:00.000000Z"


class Records:
    """A state with what a test puts in."""

    def __init__(self, instance=None, turn=None, mail=(), execution=None, jobs=()):
        self._found = {(Instance, "i"): instance, (Turn, "i"): turn, (Execution, execution_key("i", 1)): execution}
        self._mail = list(mail)
        self._jobs = list(jobs)

    def get(self, kind, key):
        return self._found.get((kind, key))

    def mail(self, instance_id):
        del instance_id
        return self._mail

    def activities_of(self, instance_id):
        del instance_id
        return self._jobs

    def begun_by(self, schedule_id):
        return {"nightly": ["other"]}.get(schedule_id, [])


def instance(**more):
    return Instance("i", "flow", BEFORE, BEFORE, 1, **{"orchestration_version": "1.0.0", **more})


def start(**more):
    return Message(1, "i", "StartOrchestration", msgspec.Raw(b"{}"), BEFORE, BEFORE, orchestration="flow", **more)


def signal(**more):
    return Message(2, "i", "QueueMessage", msgspec.Raw(b"{}"), BEFORE, BEFORE, **more)


def worker(*workflows, **more):
    return WorkerInfo(
        worker_id="w",
        name="w",
        host="h",
        pid=1,
        version="0",
        started_at=BEFORE,
        last_seen=NOW,
        workflows=workflows,
        **more,
    )


def explained(records, *workers):
    return explain_instance(records, "i", NOW, workers, lambda job: f"reason of {job.job_id}")


HAS_IT = worker("flow 1.0.0")


def test_nothing_is_said_of_an_instance_that_is_not_there():
    assert explained(Records()) is None
    assert explained(Records(mail=[signal(parked="orphan")])) is None


@pytest.mark.parametrize(
    ("status", "output", "sentence"),
    [
        ("COMPLETED", b'"1"', f"completed at {NOW}"),
        ("FAILED", b'"first\\nlast"', f"failed at {NOW}: first"),
        ("FAILED", b'"\\n first\\nlast\\n"', f"failed at {NOW}: first"),
        ("FAILED", b'"\\n"', f"failed at {NOW}"),
        ("FAILED", b'"%s"' % (b"x" * 500), f"failed at {NOW}: {'x' * 199}…"),
        ("CANCELLED", b'"enough"', f"cancelled at {NOW}: enough"),
        ("FAILED", b'{"$blob":"sha256:0","size":1}', f"failed at {NOW}"),
    ],
)
def test_an_ended_one_says_how_and_when(status, output, sentence):
    record = instance(status=InstanceStatus(status), completed_at=NOW)
    execution = Execution("i", 1, 1, BEFORE, output=msgspec.Raw(output))
    reason = explained(Records(record, execution=execution))
    assert (reason.code, reason.sentence) == ("ended", sentence)


def test_a_blocked_one_says_what_differs_and_since_when():
    turn = Turn("i", 1, reason=blocked_reason(NONDETERMINISM, "event 7 differs\n  recorded: a"), reason_at=BEFORE)
    reason = explained(Records(instance(), turn, [signal()]), HAS_IT)
    assert reason.code == "blocked"
    assert reason.sentence == f"blocked since {BEFORE} (Nondeterminism): event 7 differs"
    assert reason.lines == ("  recorded: a",)


def test_one_without_code_says_which_versions_there_are():
    turn = Turn("i", 1, reason="no live worker has workflow 'flow' 1.0.0", reason_at=BEFORE)
    reason = explained(Records(instance(), turn, [signal()]), worker("flow 2.0.0", "other 1.0.0"))
    assert reason.code == "unregistered"
    assert reason.sentence == (
        f"no live worker has workflow 'flow' 1.0.0, since {BEFORE}; live workers have flow 2.0.0"
    )


def test_one_that_has_something_to_do_and_no_worker_is_without_code():
    assert explained(Records(instance(), mail=[signal()])).code == "unregistered"
    assert explained(Records(None, mail=[start()])).sentence.startswith("no live worker has workflow 'flow', since")
    assert explained(Records(None, mail=[start()]), worker("flow 9.0.0")).code == "messages_waiting"


def test_one_in_somebodys_hands_says_whose():
    turn = Turn("i", 1, token=1, locked_until=LATER, locked_at=BEFORE, session_id="s")
    record = instance(waiting_on=("step 3 'fetch'",))
    reason = explained(Records(record, turn, [signal()]), worker("flow 1.0.0", session_id="s"))
    assert (reason.code, reason.holder, reason.until) == ("turn_running", "w", LATER)
    assert "step 3 'fetch'" in reason.sentence


def test_one_with_mail_says_how_much_and_when_it_is_tried():
    reason = explained(Records(instance(), mail=[signal(), signal()]), HAS_IT)
    assert reason.sentence == f"2 messages wait to be delivered, since {BEFORE}"
    reason = explained(Records(instance(), mail=[signal(visible_at=LATER)]), HAS_IT)
    assert (reason.sentence, reason.until) == (
        f"1 message waits to be delivered, since {BEFORE}; next try at {LATER}",
        LATER,
    )


def test_one_that_waits_says_for_what():
    job = Job(
        job_id="j",
        job_type="send",
        params=msgspec.Raw(b"{}"),
        created_at=BEFORE,
        owner=owner_of("i", 1, 2),
    )
    lines = ("activity 2 'send'", "activity 9 'gone'", "timer 3 until 1767272400000", "signal 'paid'")
    record = instance(waiting_on=lines)
    timer = Message(3, "i", "TimerFired", msgspec.Raw(b"{}"), LATER, BEFORE, visible_at=LATER)
    reason = explained(Records(record, mail=[timer], jobs=[job]), HAS_IT)
    assert reason.code == "waiting"
    assert reason.lines == (
        f"activity 'send': job j is {JobStatus.QUEUED}, reason of j",
        "activity 'gone': its job is gone",
        f"a timer at {LATER}",
        "signal 'paid'",
    )
    assert reason.sentence.endswith("; and 1 more")
    assert reason.until == LATER
    assert explained(Records(instance()), HAS_IT).sentence == "waits for nothing that was recorded"


def test_one_whose_code_has_come_since_is_not_without_code():
    turn = Turn("i", 1, reason="no live worker has workflow 'flow' 1.0.0", reason_at=BEFORE)
    assert explained(Records(instance(), turn, [signal()]), HAS_IT).code == "messages_waiting"


def test_a_timer_waits_for_code_since_it_fired():
    fired = "2026-01-01T11:30:00.000000Z"
    timer = Message(3, "i", "TimerFired", msgspec.Raw(b"{}"), fired, BEFORE, visible_at=fired)
    assert explained(Records(instance(), mail=[timer])).sentence.endswith(f"since {fired}")


def test_mail_under_a_lock_that_lapsed_says_that_nobody_looks():
    turn = Turn("i", 1, token=1, locked_until=BEFORE, locked_at=BEFORE)
    reason = explained(Records(instance(), turn, [signal()]))
    assert reason.code == "messages_waiting"
    assert reason.sentence.endswith("; no live worker runs workflows")


def test_children_and_questions_are_named():
    record = instance(waiting_on=("child 'pay' 'i::sub::1-4'", "decision 5 'Approve?'"))
    reason = explained(Records(record), HAS_IT)
    assert reason.sentence == "waits for child 'pay' 'i::sub::1-4'; decision 5 'Approve?'"


def test_a_start_that_waits_for_another_of_its_schedule_names_it():
    reason = explained(Records(None, mail=[start(parked="overlap", schedule_id="nightly")]), HAS_IT)
    assert (reason.code, reason.holder) == ("waiting", "other")
    assert reason.sentence == "waits until instance other has ended; one at a time"
    reason = explained(Records(None, mail=[start(parked="overlap", schedule_id="free")]), HAS_IT)
    assert reason.holder is None


def test_the_first_reason_that_holds_is_given():
    """Take away one after the other what stands before the rest."""
    over = instance(status=InstanceStatus.COMPLETED, completed_at=BEFORE)
    waits = instance(waiting_on=("signal 'paid'",))
    blocked = Turn("i", 1, locked_until=LATER, locked_at=BEFORE, reason=blocked_reason("Input", "no"), reason_at=BEFORE)
    unknown = Turn("i", 1, locked_until=LATER, locked_at=BEFORE, reason="no live worker has workflow", reason_at=BEFORE)
    held = Turn("i", 1, token=1, locked_until=LATER, locked_at=BEFORE)
    ladder = [
        ("ended", Records(over, blocked, [signal()]), ()),
        ("blocked", Records(waits, blocked, [signal()]), ()),
        ("unregistered", Records(waits, unknown, [signal()]), ()),
        ("turn_running", Records(waits, held, [signal()]), (HAS_IT,)),
        ("messages_waiting", Records(waits, None, [signal()]), (HAS_IT,)),
        ("waiting", Records(waits), (HAS_IT,)),
    ]
    assert [explained(records, *workers).code for _, records, workers in ladder] == [code for code, _, _ in ladder]
