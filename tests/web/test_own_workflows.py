"""A client waits for, reads and lists the workflows it started, in Python and over HTTP; others' are not there."""

from __future__ import annotations

import hashlib

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.app.workflows.handle import Instance
from holdfast.errors import Forbidden, InvalidOperation, WorkflowFinished, WorkflowNotFound
from holdfast.model.access import Access, Role
from holdfast.model.workflows.commands import NewMessage, StartInstance
from holdfast.model.workflows.work_items import StartOrchestration, encode_item
from holdfast.stores.http.store import HttpStore

ROLES = {"shop": Role.CLIENT, "rival": Role.CLIENT, "worker": Role.WORKER, "reader": Role.READER, "admin": Role.ADMIN}
ACCESSES = [
    Access(name=name, roles=(role,), digest=hashlib.sha256(name.encode()).hexdigest()) for name, role in ROLES.items()
]
ABROAD = Access(name="abroad", roles=(Role.CLIENT,), namespaces=("far",), digest=hashlib.sha256(b"abroad").hexdigest())
PATIENCE_S = 30


def program(url, name):
    """Give the application of somebody: all have the same code."""
    hf = Holdfast(url, access_token=name)

    @hf.workflow(name="pack")
    async def pack(number: int) -> str:
        hf.kv.set("number", number)
        return f"packed {number}"

    @hf.workflow(name="order")
    async def order(number: int) -> str:
        packed = await pack.call(number)
        paid = await hf.signal("paid", type=int)
        return f"{packed}, {paid} paid"

    @hf.workflow(name="count")
    async def count(left: int) -> int:
        if left:
            hf.continue_as_new(left - 1)
        return left

    return hf, order, count


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def served(request, tmp_path_factory):
    """A coordinator at which one has started workflows that ran, and another none."""
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path_factory.mktemp('own') / 'jobs.db'}"
    with running(url, accesses=[*ACCESSES, ABROAD]) as serving:
        programs = {name: program(serving.url, name) for name in (*ROLES, "abroad")}
        _, order, count = programs["shop"]
        order.start(7, id="mine").signal("paid", 3)
        count.start(2, id="on-and-on")
        programs["admin"][1].start(8, id="theirs")
        programs["worker"][0].work(until_idle=True)
        order.start(9, id="not begun")
        yield serving, programs
        for hf, *_ in programs.values():
            hf.close()


def test_a_client_gets_the_result_of_what_it_started(served):
    _, programs = served
    shop = programs["shop"][0]
    mine = shop.instance("mine")
    assert mine.result(timeout=PATIENCE_S) == "packed 7, 3 paid"
    assert mine.status().submitted_by == "shop"
    assert {type(event.kind).__name__ for event in mine.history()} >= {"OrchestrationStarted", "OrchestrationCompleted"}
    assert [one.execution_id for one in mine.executions()] == [1]


def test_what_a_workflow_starts_is_its_starters_and_what_goes_on_as_new_stays_theirs(served):
    _, programs = served
    shop = programs["shop"][0]
    (child,) = shop.instance("mine").children()
    assert (child.status().submitted_by, child.result(timeout=PATIENCE_S)) == ("shop", "packed 7")
    assert child.kv.get("number") == 7
    going = shop.instance("on-and-on")
    assert (going.result(timeout=PATIENCE_S), going.status().execution_id) == (0, 3)
    assert going.status().submitted_by == "shop"
    assert going.history(1)


def test_a_client_lists_what_it_started_and_nobody_elses(served):
    _, programs = served
    shop, rival, reader = (programs[name][0] for name in ("shop", "rival", "reader"))
    (child,) = shop.instance("mine").children()
    assert {one.id for one in shop.instances()} == {"mine", "on-and-on", "not begun", child.id}
    assert [one.id for one in shop.instances(limit=2)] == [one.id for one in shop.instances()][:2]
    assert rival.instances() == []
    assert {one.id for one in reader.instances()} > {"mine", "theirs"}


@pytest.mark.parametrize("name", ["mine", "theirs", "not begun", "nobody's"])
def test_whatever_is_others_is_not_there(served, name):
    """Whether there is such an instance, begun or not, does not show."""
    _, programs = served
    rival = Instance(programs["rival"][0], name)
    for look in (rival.status, rival.history, rival.executions, rival.children, rival.kv.all, rival.result):
        with pytest.raises(WorkflowNotFound, match="there is no instance"):
            look()


def test_what_nobody_has_begun_is_seen_by_who_started_it(served):
    _, programs = served
    state = programs["shop"][0].instance("not begun").status()
    assert (state.status, state.submitted_by) == ("RUNNING", "shop")


def test_a_client_signals_and_does_nothing_else_to_an_instance(served):
    _, programs = served
    programs["shop"][0].instance("not begun").signal("paid", 1)
    for name in ("mine", "not begun"):
        mine = programs["shop"][0].instance(name)
        for change in (mine.cancel, mine.reset, mine.fork, mine.fail):
            with pytest.raises((Forbidden, InvalidOperation, WorkflowFinished)):
                change()
    assert programs["reader"][0].instance("not begun").status().status == "RUNNING"


def test_nobody_starts_anything_in_anothers_name(served):
    serving, _ = served
    store = HttpStore.open(serving.url, access_token="rival")
    item = encode_item(StartOrchestration(instance="claimed", orchestration="pack", input='{"number":1}'))
    store.decide([StartInstance(message=NewMessage(item=msgspec.Raw(item)), submitted_by="shop")])
    with store.read() as view:
        assert view.beginnings("claimed")[0].submitted_by == "rival"
    store.close()


def test_workflows_are_not_for_who_is_kept_to_another_namespace(served):
    _, programs = served
    with pytest.raises(Forbidden):
        programs["abroad"][0].instances()
    with pytest.raises(Forbidden):
        programs["abroad"][1].start(1, id="abroad")


def test_a_client_that_waits_in_vain_is_told_why(served):
    _, programs = served
    shop = programs["shop"][0]
    with pytest.raises(
        TimeoutError, match=r"'not begun' is RUNNING after 0 s: no live worker has workflow 'order', since .*Z\. It"
    ):
        shop.instance("not begun").result(timeout=0)

    @shop.task(name="nobody-does")
    def nobody_does() -> None: ...

    with pytest.raises(TimeoutError, match=r"is QUEUED after 0 s: no live worker knows task nobody-does on"):
        nobody_does.enqueue().result(timeout=0)


# --- over HTTP --------------------------------------------------------------------------------------------------------

ONE = ("", "/history", "/executions", "/explain", "/export")


@pytest.fixture
def ask(served):
    with httpx2.Client(base_url=f"{served[0].url}/api/v1") as client:

        def asked(name, path, **params):
            return client.get(f"/workflows{path}", params=params, headers={"Authorization": f"Bearer {name}"})

        yield asked


@pytest.mark.parametrize("path", ONE)
def test_over_http_a_client_reads_what_it_started(ask, path):
    assert ask("shop", f"/mine{path}").status_code == 200


@pytest.mark.parametrize("path", ONE)
def test_over_http_whatever_is_others_is_not_there(ask, path):
    said = {ask("rival", f"/{name}{path}").json()["detail"].replace(name, "…") for name in ("mine", "nobody", "theirs")}
    assert said == {"there is no instance '…'."}
    assert ask("rival", f"/mine{path}").status_code == 404
    assert ask("worker", f"/mine{path}").status_code == ask("abroad", f"/nobody{path}").status_code == 403


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_over_http_a_client_lists_what_it_started_page_by_page(ask, limit):
    found, cursor = [], None
    while True:
        page = ask("shop", "", limit=limit, **({} if cursor is None else {"cursor": cursor})).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["items"]) == limit
    assert {one["submitted_by"] for one in found} == {"shop"}
    ids = [one["instance_id"] for one in found]
    assert ids[:1] == ["not begun"]
    assert len(ids) == len(set(ids)) == 4


def starting(name):
    return StartInstance(
        message=NewMessage(
            item=msgspec.Raw(encode_item(StartOrchestration(instance=name, orchestration="order", input="{}")))
        )
    )


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_a_client_started_is_listed_behind_any_number_of_others_that_nobody_has_begun(kind, tmp_path):
    url = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"
    with running(url, accesses=ACCESSES) as serving:
        for who, names in (("rival", [f"{n:04}" for n in range(1100)]), ("shop", ["own-1", "own-2", "own-3"])):
            store = HttpStore.open(serving.url, access_token=who)
            store.decide([starting(name) for name in names])
            store.close()

        def pages(who, **params):
            found, cursor = [], {}
            while True:
                page = httpx2.get(
                    f"{serving.url}/api/v1/workflows",
                    params={**params, **cursor},
                    headers={"Authorization": f"Bearer {who}"},
                ).json()
                found.append([row["instance_id"] for row in page["items"]])
                if page["next_cursor"] is None:
                    return found
                cursor = {"cursor": page["next_cursor"]}

        assert [one for page in pages("shop", limit=2) for one in page] == ["own-1", "own-2", "own-3"]
        assert [len(page) for page in pages("reader", limit=200)] == [200] * 5 + [103]
        assert pages("shop", workflow="other") == [[]]
