"""`assert_crash_safe` lets healthy workflows pass, finds planted bugs, and names a run that shows each again."""

import os
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress

import crashsafe_cases as cases
import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidValue, UnknownTask
from holdfast.testing import assert_crash_safe
from holdfast.testing.crashsafe.faults import Fault, Size, What, fewest, plan_of
from holdfast.testing.crashsafe.grounds import STORES

SIZE = Size(commits=4, messages=6, activities=2, moves=10)


def report_of(workflow, **options):
    with pytest.raises(AssertionError) as caught:
        assert_crash_safe(workflow, stubs=cases.STUBS, **options)
    return str(caught.value)


def seed_in(report):
    found = re.search(r"repeat it: assert_crash_safe\(.*seed=(\d+)\)", report)
    assert found is not None, report
    return int(found[1])


# --- healthy ----------------------------------------------------------------------------------------------------------


def test_a_healthy_workflow_passes_with_activities_steps_timers_and_signals():
    worlds = []
    assert_crash_safe(cases.healthy, (3,), stubs=cases.STUBS, signals=[("paid", 9)], seeds=15, check=worlds.append)
    assert len(worlds) == 1 + 2 * worlds[0].commits + 15
    assert {call.name for world in worlds for call in world.calls} == {"double"}


def test_a_sorted_set_passes_under_every_hash_seed():
    assert_crash_safe(cases.in_order, stubs=cases.STUBS, seeds=8)


def test_outcomes_name_all_that_is_allowed_when_a_clock_may_jump():
    late = [("late", "here", 30.0)]
    assert_crash_safe(cases.hurried, signals=late, outcomes=["here", "too late"], seeds=10)
    with pytest.raises(AssertionError, match="none of the outcomes"):
        assert_crash_safe(cases.hurried, signals=late, outcomes=["too late"], seeds=5)


def test_functions_may_be_made_anew_for_each_run():
    made = []

    def stubs():
        made.append(1)
        return cases.STUBS

    assert_crash_safe(cases.in_order, stubs=stubs, seeds=0)
    assert len(made) > 1


@pytest.mark.parametrize("name", cases.HEALTHY)
def test_no_healthy_workflow_is_blamed(name):
    assert_crash_safe(getattr(cases, name), stubs=cases.STUBS, seeds=2)


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory:"])
def test_a_healthy_workflow_passes_on_stores_that_lose_what_is_not_durable(store):
    crashed = []
    assert_crash_safe(
        cases.healthy,
        (3,),
        stubs=cases.STUBS,
        signals=[("paid", 9)],
        seeds=1,
        store=store,
        check=lambda world: crashed.append(world.crashed),
    )
    assert sum(count > 0 for count in crashed) >= len(crashed) - 2


# --- planted bugs -----------------------------------------------------------------------------------------------------

PLANTED = {
    "non_idempotent": "not idempotent",
    "reads_clock": "diverges in replay",
    "unordered": "diverges in replay",
    "counts_globally": "ends otherwise|diverges in replay",
    "loses_signal": "does not end|ends otherwise",
}


#: What is left when faults that do not matter are taken away.
FEWEST = {
    "unordered": "fewest faults that still fail: replay under PYTHONHASHSEED",
    "loses_signal": "fewest faults that still fail: another order of completions",
}


@pytest.mark.parametrize("store", ["memory:", "wal:"])
@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_bug_is_found_and_the_line_that_is_printed_shows_it_again(name, store):
    options = {"signals": [("paid", 1), ("paid", 2)]} if name == "loses_signal" else {}
    report = report_of(getattr(cases, name), seeds=12, store=store, **options)
    assert re.search(f"not crash-safe: ({PLANTED[name]})", report), report
    assert "history" in report
    assert FEWEST.get(name, "") in report
    again = said_again(report)
    assert re.search(f"not crash-safe: ({PLANTED[name]})", again), again
    assert again.splitlines()[-1] == report.splitlines()[-1]


def said_again(report):
    """Do what the last line of a report says, and give the report on that."""
    line = report.splitlines()[-1].removeprefix("repeat it: ").replace("stubs=…", "stubs=STUBS")
    with pytest.raises(AssertionError) as caught:
        eval(line, {**vars(cases), "assert_crash_safe": assert_crash_safe})
    return str(caught.value)


def test_the_line_that_repeats_a_run_has_all_that_can_be_written():
    report = report_of(cases.hurried, signals=[("late", "here", 30.0)], outcomes=[KeyError], check=print, store="wal:")
    assert report.endswith(
        "repeat it: assert_crash_safe(hurried, signals=[('late', 'here', 30.0)], outcomes=[KeyError], "
        "stubs=…, check=…, store='wal:', seed=0)"
    )


def test_a_clock_is_named_with_its_line():
    assert "hf.now()" in report_of(cases.reads_clock)


def test_a_check_that_raises_fails_the_run():
    def check(world):
        assert len(world.calls) == 3, "called too often"

    report = report_of(cases.in_order, check=check)
    assert "check failed" in report
    assert "called too often" in report
    assert seed_in(report) > 0


# --- seeds and faults -------------------------------------------------------------------------------------------------


def test_every_commit_is_crashed_before_and_after_and_one_seed_is_one_plan():
    crashes = [plan_of(seed, SIZE)[0] for seed in range(1, 9)]
    assert crashes == [Fault(what, commit) for commit in range(4) for what in (What.CRASH_BEFORE, What.CRASH_AFTER)]
    assert plan_of(0, SIZE) == ()
    assert plan_of(50, SIZE) == plan_of(50, SIZE)
    kinds = {fault.what for seed in range(9, 200) for fault in plan_of(seed, SIZE)}
    assert kinds == {*What} - {What.CRASH_AT_EVERY}  # which is for plans made by hand: a run of it is many runs long


def test_faults_that_do_not_matter_are_taken_away():
    plan = tuple(Fault(What.MESSAGE_TWICE, at) for at in range(6))
    assert fewest(plan, lambda found: {1, 4} <= {one.at for one in found}) == (plan[1], plan[4])
    assert fewest(plan, lambda _: True) == ()


# --- bad input --------------------------------------------------------------------------------------------------------


def test_an_activity_without_function_and_another_store_are_refused():
    with pytest.raises(UnknownTask, match="greet"):
        assert_crash_safe(cases.in_order)
    with pytest.raises(InvalidValue, match=r"sqlite.*without a path"):
        assert_crash_safe(cases.in_order, stubs=cases.STUBS, store="sqlite:x.db")


# --- scripts ----------------------------------------------------------------------------------------------------------

SCRIPT = """
from __future__ import annotations

import msgspec

from holdfast import Holdfast
from holdfast.testing import assert_crash_safe

hf = Holdfast("memory:")


class Item(msgspec.Struct):
    name: str


@hf.task
def take(item: Item) -> int:
    return 1


@hf.workflow
async def sell(name: str) -> int:
    return await take.call(Item(name))


if __name__ == "__main__":
    from holdfast.testing.crashsafe import proving

    elsewhere, seen = proving.replay_elsewhere, []
    proving.replay_elsewhere = lambda *task: seen.append(elsewhere(*task)) or seen[-1]
    assert_crash_safe(sell, ("lamp",), seed=15)
    print(take.name, seen)
"""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sales.py"], "sales.take"),
        (["-m", "shop.sales"], "shop.sales.take"),
        (["-m", "shop"], "shop.take"),
    ],
)
def test_a_script_may_try_its_own_workflow_whose_tasks_have_no_names(words, name, tmp_path):
    (tmp_path / "shop").mkdir()
    for file in ("sales.py", "shop/sales.py", "shop/__main__.py"):
        (tmp_path / file).write_text(SCRIPT)
    (tmp_path / "shop/__init__.py").touch()
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{name} \[(\[\](, )?)+\]\n", done.stdout)


#: Ends itself should it be started too often, whoever starts it.
UNGUARDED = """
import os
from pathlib import Path

with Path("pids").open("a") as pids:
    print(os.getpid(), file=pids)
if len(Path("pids").read_text().split()) > 3:
    os._exit(9)

from holdfast import Holdfast
from holdfast.testing import assert_crash_safe

hf = Holdfast("memory:")


@hf.workflow
async def sell() -> int:
    return await hf.step(int, 1)


assert_crash_safe(sell, seed=15)
"""


@pytest.mark.parametrize("words", [["sales.py"], ["-m", "sales"], ["-c", "import sales"]])
def test_script_without_main_guard_is_refused_and_starts_one_process_only(words, tmp_path):
    (tmp_path / "sales.py").write_text(UNGUARDED)
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert len((tmp_path / "pids").read_text().split()) == 2
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "InvalidOperation" in last
    assert "calls assert_crash_safe when it is imported" in last
    assert 'if __name__ == "__main__":' in last


#: Tells by a pipe that the other process has come to the import, which never ends.
HANGING = """
import os
import threading
from pathlib import Path

from holdfast import Holdfast
from holdfast.testing import assert_crash_safe

hf = Holdfast("memory:")


@hf.workflow
async def sell() -> int:
    return await hf.step(int, 1)


if __name__ == "__main__":
    assert_crash_safe(sell, seed=15)
else:
    Path("told").write_text(str(os.getpid()))
    threading.Event().wait()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes that are no children can be waited for on Linux")
def test_process_that_replays_ends_with_the_one_that_started_it(tmp_path):
    (tmp_path / "sales.py").write_text(HANGING)
    os.mkfifo(tmp_path / "told")
    parent = subprocess.Popen([sys.executable, "sales.py"], cwd=tmp_path)
    child = os.pidfd_open(int((tmp_path / "told").read_text()))
    try:
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([child], [], [], 60)
        assert ended
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)


# --- workflows of an application --------------------------------------------------------------------------------------


def test_a_workflow_of_an_application_brings_its_tasks_and_children():
    with pytest.warns(UserWarning, match="no variable of its module"):
        assert_crash_safe(family(), (4,), seeds=10)


def family():
    app = Holdfast("memory:")

    @app.task
    def halve(n: int) -> int:
        return n // 2

    @app.workflow
    async def child(n: int) -> int:
        return await halve.call(n)

    @app.workflow
    async def parent(n: int) -> int:
        return await child.call(n) + await app.step(cases.double, n)

    return parent
