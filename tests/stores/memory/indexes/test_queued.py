"""Lines of QUEUED jobs: each in its place, ready or held back, whatever was changed and undone before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lineskit import RAW, START, Told, batches, job

from holdfast.model.jobs import Job
from holdfast.model.times import later
from holdfast.rules.jobs.dispatch_order import place
from holdfast.stores.memory.indexes import ready_by_task
from holdfast.stores.memory.indexes.queued import QueueLines
from holdfast.stores.memory.indexes.ready_by_task import TaskLines

SOON = later(START, 60)


@pytest.fixture(autouse=True, scope="module")
def short_lines():
    """Look by task behind one of another: lines are short here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ready_by_task, "PASSED", 1)
        patch.setattr(ready_by_task, "PASSED_EACH", 1)
        yield


@st.composite
def jobs(draw):
    number = draw(st.integers(0, 7))
    return Job(
        f"j{number}",
        "ab"[number % 2],
        RAW,
        START,
        namespace="n" if number == 7 else "",
        queue=draw(st.sampled_from("qqqr")),
        rank=draw(st.sampled_from([-1, 0, 0, 2])),
        position=draw(st.integers(-1, 1)),
        not_before=draw(st.sampled_from([None, None, START, SOON])),
        sequence_number=draw(st.sampled_from([None, None, 2])),
    )


def waits(one):
    """Tell who waits for others here: whoever has a number."""
    return one.sequence_number is not None


def is_promoted(one):
    return one.not_before == START and not waits(one)


def filled(everything):
    """Fill lines at once, and make those ready whose time has come."""
    lines = QueueLines(TaskLines({one.job_id: one for one in everything}))
    lines.fill(everything, {one.job_id for one in everything if waits(one)})
    for one in filter(is_promoted, everything):
        lines.promote(one)
    return lines


def answers(lines, everything):
    """Ask all that can be asked."""
    found = [sorted(lines.few(namespace, 8) or ()) for namespace in ("", "n", "other")]
    for namespace in ("", "n"):
        for queues in ("q", "r", "rq", "qq"):
            found += [list(lines.ready(namespace, queues, tasks)) for tasks in (None, {"a"}, {"b", "a"}, set())]
        for queue in "qr":
            found += [list(lines.all(namespace, queue)), lines.bands(namespace, queue)]
            for rank in (-1, 0, 1, 2):
                edges = [lines.edge(namespace, queue, rank, last=last) for last in (False, True)]
                found += [lines.band(namespace, queue, rank), edges]
    return found + [lines.beside(one, after=after) for one in everything for after in (False, True)]


@settings(max_examples=60)
@given(batches(jobs()))
def test_after_any_changes_and_undone_ones_lines_answer_as_those_filled_with_what_is_there(drawn):
    told = Told()
    lines = QueueLines(TaskLines(told.records[Job]))

    def follow(before, after):
        if before is not None:
            assert lines.discard(before) == waits(before)
        if after is not None:
            lines.add(after, waits=waits(after))
            if is_promoted(after):
                lines.promote(after)
        list(lines.ready("", "q", {"a"}))  # from here on it has lines by task

    told.run(follow, drawn)
    everything = list(told.records[Job].values())
    assert answers(lines, everything) == answers(filled(everything), everything)
    ready = [one for one in everything if not waits(one) and one.not_before != SOON and not one.namespace]
    assert list(lines.ready("", "qr", None)) == sorted(map(place, ready))
    mine = [one for one in everything if (one.namespace, one.queue) == ("", "q")]
    assert list(lines.all("", "q")) == [one.job_id for one in sorted(mine, key=place)]


@given(st.lists(jobs(), unique_by=lambda one: one.job_id))
def test_a_band_its_edges_and_neighbours_count_those_held_back_too(everything):
    lines = filled(everything)
    assert lines.bands("", "q") == sorted({one.rank for one in everything if (one.namespace, one.queue) == ("", "q")})
    for rank in (-1, 0, 1, 2):
        band = sorted((one for one in everything if (one.namespace, one.queue, one.rank) == ("", "q", rank)), key=place)
        names = [one.job_id for one in band]
        assert lines.band("", "q", rank) == names
        assert lines.edge("", "q", rank, last=False) == (band[0].position if band else None)
        assert lines.edge("", "q", rank, last=True) == (band[-1].position if band else None)
        assert [lines.beside(one, after=True) for one in band] == [*names[1:], None][: len(band)]
        assert [lines.beside(one, after=False) for one in band] == [None, *names][: len(band)]


def test_a_job_stands_behind_until_it_is_promoted_and_is_held_back_again_when_it_is_put_in_anew():
    one = job("j", not_before=START)
    lines = QueueLines(TaskLines({"j": one}))
    for _ in range(2):
        lines.add(one, waits=False)
        assert list(lines.ready("", ["default"], None)) == []
        assert list(lines.all("", "default")) == ["j"]
        lines.promote(one)
        assert list(lines.ready("", ["default"], None)) == [place(one)]
        assert list(lines.all("", "default")) == ["j"]
        assert lines.discard(one) is False
        assert list(lines.all("", "default")) == []


def test_one_that_waits_for_others_is_held_back_whatever_the_time_and_says_so_once():
    one = job("j")
    lines = QueueLines(TaskLines({"j": one}))
    lines.add(one, waits=True)
    assert list(lines.ready("", ["default"], None)) == []
    assert lines.discard(one) is True
    lines.add(one, waits=False)
    assert list(lines.ready("", ["default"], None)) == [place(one)]
    assert lines.discard(one) is False


def test_the_jobs_of_a_namespace_are_given_if_they_are_few_delayed_ones_too():
    lines = filled([job("a"), job("b", queue="q", not_before=SOON), job("c", namespace="n")])
    assert sorted(lines.few("", 2)) == ["a", "b"]
    assert lines.few("", 1) is None
