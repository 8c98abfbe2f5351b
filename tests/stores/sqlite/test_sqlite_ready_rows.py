"""Ready jobs by task in `sqlite:`: three steps, each taken only when the one before has not found enough."""

from itertools import islice

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Enqueue, NewJob
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.ready_rows import PASSED, ReadyRows
from holdfast.stores.sqlite.statements import SQL

STEPS = {SQL[name]: name for name in ("ready", "place_behind", "heads_of_tasks", "ready_of_task")}
#: A worker's tasks, more of them than anybody takes jobs of.
TASKS = [f"task-{number}" for number in range(20)]


@pytest.fixture
def engine(tmp_path):
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db"))
    yield engine
    engine.close()


def fill(engine, *tasks):
    jobs = tuple(NewJob(job_id=engine.new_id(), job_type=task, params=msgspec.Raw(b"{}")) for task in tasks)
    engine.ask(Enqueue(jobs=jobs))
    return [job.job_id for job in jobs]


def found(engine, tasks, count):
    """Give the first ids, and the queries that were asked for them."""
    asked = []
    with engine.read() as view:

        def query(sql, values):
            asked.append(STEPS[sql])
            return view._rows(sql, values)

        rows = ReadyRows(query, "", "default", free=True).of(tasks)
        return [row[0] for row in islice(rows, count)], asked


def test_a_queue_of_known_tasks_takes_one_query(engine):
    ids = fill(engine, *TASKS)
    assert found(engine, TASKS, 100) == (ids, ["ready"])


def test_a_few_others_are_passed_by_without_looking_for_tasks(engine):
    ids = fill(engine, TASKS[0], *["other"] * PASSED, TASKS[1])
    assert found(engine, TASKS, 2) == ([ids[0], ids[-1]], ["ready", "place_behind", "ready"])
    assert found(engine, TASKS[1:2], 1)[0] == ids[-1:]


def test_behind_many_others_only_the_lines_are_begun_whose_turn_comes(engine):
    before = fill(engine, TASKS[3])
    fill(engine, *["other"] * PASSED * 2 * len(TASKS))
    behind = fill(engine, *TASKS, *TASKS)
    ids, asked = found(engine, TASKS, 4)
    assert ids == before + behind[:3]
    assert asked == ["ready", "place_behind", "ready", "heads_of_tasks", *["ready_of_task"] * 3]
    ids, asked = found(engine, TASKS, 100)
    assert ids == before + behind
    assert asked.count("ready_of_task") == len(TASKS)


def test_whoever_asks_for_no_task_asks_nothing(engine):
    fill(engine, "other")
    assert found(engine, (), 1) == ([], [])
