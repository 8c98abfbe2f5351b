"""Templates and schedules by name, who makes jobs from what, and when: whatever was changed and undone before."""

from hypothesis import given
from hypothesis import strategies as st
from lineskit import START, TIMES, Told, batches

from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import later
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.due import Lanes
from holdfast.stores.memory.indexes.schedules import ScheduleLines


@st.composite
def schedules(draw):
    number = draw(st.integers(0, 5))
    return Schedule(
        f"s{number}",
        f"{draw(st.sampled_from('xy'))}{number}",  # no two have one name: the rules see to that
        START,
        namespace="n" if number == 5 else "",
        template_id=draw(st.sampled_from([None, "t0", "t1"])),
        enabled=draw(st.booleans()),
        next_trigger_at=draw(st.none() | TIMES),
    )


@st.composite
def templates(draw):
    number = draw(st.integers(0, 2))
    return Template(f"t{number}", f"{draw(st.sampled_from('xy'))}{number}", "a", START)


@given(batches(schedules() | schedules() | templates()))
def test_after_any_changes_and_undone_ones_names_users_and_times_are_those_of_what_is_there(drawn):
    told, lanes = Told(), Lanes()
    lines = ScheduleLines(lanes)

    def follow(before, after):
        kind = type(after or before)
        (lines.reindex_schedule if kind is Schedule else lines.reindex_template)(before, after)

    told.run(follow, drawn)
    there = list(told.records[Schedule].values())
    names = {(Schedule, one.namespace, one.name): one.schedule_id for one in there}
    names |= {(Template, "", one.name): one.template_id for one in told.records[Template].values()}
    for kind in (Schedule, Template):
        for namespace in ("", "n"):
            for name in (f"{letter}{number}" for letter in "xy" for number in range(6)):
                assert lines.key(kind, namespace, name) == names.get((kind, namespace, name))
    for template in ("t0", "t1", "t2"):
        assert lines.users(template) == sorted(one.schedule_id for one in there if one.template_id == template)
    due = [(one.next_trigger_at, one.schedule_id) for one in there if one.enabled and one.next_trigger_at]
    assert list(lanes[Lane.SCHEDULE]) == sorted(due)


def test_a_name_that_was_given_up_is_another_ones():
    lines = ScheduleLines(Lanes())
    old, renamed, new = (Schedule(key, name, START) for key, name in (("s1", "x"), ("s1", "y"), ("s2", "x")))
    lines.reindex_schedule(None, old)
    lines.reindex_schedule(old, renamed)
    assert lines.key(Schedule, "", "x") is None
    lines.reindex_schedule(None, new)
    assert (lines.key(Schedule, "", "x"), lines.key(Schedule, "", "y")) == ("s2", "s1")
    lines.reindex_schedule(renamed, None)
    assert (lines.key(Schedule, "", "x"), lines.key(Schedule, "", "y")) == ("s2", None)


def test_templates_schedules_and_namespaces_may_have_the_same_names():
    lines = ScheduleLines(Lanes())
    lines.reindex_template(None, Template("t", "x", "a", START))
    lines.reindex_schedule(None, Schedule("s", "x", START))
    lines.reindex_schedule(None, Schedule("o", "x", START, namespace="n"))
    found = (lines.key(Template, "", "x"), lines.key(Schedule, "", "x"), lines.key(Schedule, "n", "x"))
    assert found == ("t", "s", "o")
    assert lines.key(Template, "n", "x") is None


def test_a_schedule_that_is_paused_waits_for_no_time_and_still_uses_its_template():
    lanes = Lanes()
    lines = ScheduleLines(lanes)
    paused, goes_on = (
        Schedule("s", "x", START, template_id="t", enabled=enabled, next_trigger_at=later(START, 60))
        for enabled in (False, True)
    )
    lines.reindex_schedule(None, paused)
    assert list(lanes[Lane.SCHEDULE]) == []
    lines.reindex_schedule(paused, goes_on)
    assert list(lanes[Lane.SCHEDULE]) == [(later(START, 60), "s")]
    lines.reindex_schedule(goes_on, paused)
    assert list(lanes[Lane.SCHEDULE]) == []
    assert lines.users("t") == ["s"]
