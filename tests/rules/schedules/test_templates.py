"""Templates: made, edited, archived, used."""

import msgspec
import pytest
from world import START, World

from holdfast.model import commands as c
from holdfast.model.schedules import NewSchedule
from holdfast.model.templates import JobOptions, NewTemplate, Template


@pytest.fixture
def world():
    return World()


def put(template_id="t", name="t", *, replace=False, version=None, **fields):
    new = NewTemplate(**{"name": name, "job_type": "work"} | fields)
    return c.PutTemplate(template_id=template_id, template=new, replace=replace, version=version)


def test_a_template_sent_again_is_not_made_again(world):
    world.do(put())
    length = len(world.groups)
    assert world.do(put()).version == 1
    assert len(world.groups) == length
    assert world.refused(put("u")) == "invalid_operation"
    assert world.refused(put("t", "other")) == "id_reused"


def test_a_template_sent_again_takes_no_edit_back(world):
    first = world.do(put(job_type="work"))
    world.do(put(replace=True, job_type="more"))
    assert world.do(put(job_type="work")) == first
    assert world.tables.get(Template, "t").job_type == "more"


def test_an_edit_raises_the_version_and_a_stale_one_is_refused(world):
    world.do(put())
    assert world.do(put(replace=True, job_type="more", version=1)).version == 2
    assert world.refused(put(replace=True, job_type="less", version=1)) == "version_conflict"
    found = world.tables.get(Template, "t")
    assert (found.job_type, found.version, found.updated_at) == ("more", 2, START)


def test_no_parameters_are_none_however_they_are_written(world):
    world.do(put(default_params=msgspec.Raw(b"{}")))
    assert world.tables.get(Template, "t").default_params == msgspec.Raw(b"null")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "no name"},
        {"job_type": ""},
        {"namespace": "no name"},
        {"options": JobOptions(lease_s=0)},
        {"options": JobOptions(queue="no queue")},
        {"options": JobOptions(ttl_s=float("nan"))},
        {"description": "\n"},
    ],
)
def test_what_cannot_be_a_template_is_refused(world, fields):
    name = fields.pop("name", "t")
    assert world.refused(put(name=name, **fields)) == "invalid_value"


def test_an_archived_template_is_used_and_edited_no_more(world):
    world.do(put())
    world.do(c.UseTemplate(template_id="t", job_id="j"))
    assert world.do(c.ArchiveTemplate(template_id="t")).version == 2
    length = len(world.groups)
    assert world.do(c.ArchiveTemplate(template_id="t")).version == 2
    assert len(world.groups) == length
    assert world.refused(c.UseTemplate(template_id="t", job_id="k")) == "invalid_operation"
    assert world.refused(put(replace=True, job_type="x")) == "invalid_operation"
    assert not world.do(c.UseTemplate(template_id="t", job_id="j")).jobs[0].created


def test_a_template_in_use_is_not_deleted(world):
    world.do(put())
    world.do(c.PutSchedule(schedule_id="s", schedule=NewSchedule(name="s", template_id="t", interval_s=60)))
    assert world.refused(c.DeleteTemplate(template_id="t")) == "invalid_operation"
    world.do(c.DeleteSchedule(schedule_id="s"))
    world.do(c.DeleteTemplate(template_id="t"))
    for command in (
        c.DeleteTemplate(template_id="t"),
        c.ArchiveTemplate(template_id="t"),
        c.UseTemplate(template_id="t", job_id="j"),
    ):
        assert world.refused(command) == "template_not_found"


def test_a_job_of_another_origin_is_not_taken_for_the_templates(world):
    world.do(put())
    world.enqueue("j")
    assert world.refused(c.UseTemplate(template_id="t", job_id="j")) == "id_reused"
