"""Queries and counts: what people ask for, in a stated order."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import JobNotFound
from holdfast.model.commands import Cancel, CreateGroup
from holdfast.model.groups import Group
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import AUTHORITY, Authority, HeldKey
from holdfast.rules.state import Lane
from holdfast.stores.protocol import JobQuery, QueueCount
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job


def _listed(harness: Harness, **query: object) -> list[str]:
    with harness.engine.read() as view:
        return [job.job_id for job in view.jobs(JobQuery(**query))]  # type: ignore[arg-type]  # named by the check


class Queries(Topic):
    """Lists, counts, lanes and look-ups."""

    def test_jobs_are_listed_newest_first_then_by_id(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("b"), new_job("c"), new_job("a"))
        harness.advance(1)
        harness.enqueue("x")
        assert _listed(harness) == ["x", "c", "b", "a"]

    def test_a_list_can_be_narrowed(self, harness: Harness) -> None:
        harness.enqueue_many(
            new_job("a", submitted_by="shop"),
            new_job("b", queue="q"),
            new_job("c", "rest"),
            new_job("d", namespace="x"),
            new_job("e", submitted_by="shop"),
        )
        harness.ask(Cancel(job_id=JobId("e")))
        assert _listed(harness, queue="q") == ["b"]
        assert _listed(harness, job_type="rest") == ["c"]
        assert _listed(harness, namespace="x") == ["d"]
        assert _listed(harness, status=JobStatus.CANCELLED) == ["e"]
        assert _listed(harness, status=JobStatus.QUEUED, queue="default") == ["c", "a"]
        assert _listed(harness, status=JobStatus.DEAD) == []
        assert _listed(harness, submitted_by="shop") == ["e", "a"]
        assert _listed(harness, submitted_by="shop", limit=1) == ["e"]
        assert _listed(harness, submitted_by="nobody") == []
        assert _listed(harness, submitted_by="shop", namespace="x") == []
        harness.restart()
        assert _listed(harness, submitted_by="shop", status=JobStatus.QUEUED) == ["a"]
        assert _listed(harness, submitted_by="shop") == ["e", "a"]

    def test_pages_follow_each_other_without_gap_or_repeat(self, harness: Harness) -> None:
        for number in range(12):
            harness.enqueue_many(new_job(f"{number:02}-a"), new_job(f"{number:02}-b"))
            harness.advance(1)
        for grant in harness.lease(7):
            harness.complete(grant)
        found: list[str] = []
        before: tuple[str, str] | None = None
        while True:
            with harness.engine.read() as view:
                page = view.jobs(JobQuery(before=before, limit=5))  # type: ignore[arg-type]  # as the page gave it
            if not page:
                break
            found += [job.job_id for job in page]
            before = (page[-1].created_at, page[-1].job_id)
        assert found == [f"{number:02}-{letter}" for number in reversed(range(12)) for letter in "ba"]

    def test_job_ids_are_found_by_how_they_begin(self, harness: Harness) -> None:
        names = ["ab", "abc", "abd", "ac", "a_", "Ab", "ab\U0010ffff", "é1", "é2", "b"]
        harness.enqueue_many(*(new_job(name, namespace="x" if name == "abd" else "") for name in names))
        with harness.engine.read() as view:
            assert list(view.ids_with_prefix("ab", 10)) == ["ab", "abc", "abd", "ab\U0010ffff"]
            assert list(view.ids_with_prefix("ab", 2)) == ["ab", "abc"]
            assert list(view.ids_with_prefix("é", 10)) == ["é1", "é2"]
            assert list(view.ids_with_prefix("a%", 10)) == []
            assert list(view.ids_with_prefix("", 100)) == sorted(names)
            assert list(view.ids_with_prefix("zz", 10)) == []

    def test_ids_of_some_namespaces_are_found_by_how_they_begin_however_many_lie_in_others(
        self, harness: Harness
    ) -> None:
        spaces = {**{f"a{at:04}": "other" for at in range(20)}, "a0000x": "x", "a9": "x", "a8": "y", "b": "x"}
        harness.enqueue_many(*(new_job(name, namespace=space) for name, space in spaces.items()))
        for group_id, space in (("a1", "x"), ("a2", "y"), ("b1", "x")):
            member = new_job(f"of-{group_id}", namespace=space)
            harness.ask(CreateGroup(group_id=group_id, namespace=space, members=(member,)))
        with harness.engine.read() as view:

            def found(*given: Any, **asked: Any) -> list[str]:
                return list(view.ids_with_prefix(*given, **asked))

            assert found("a", 10, namespaces=["x"]) == ["a0000x", "a9"]
            assert found("a", 10, namespaces=["y", "x", "y"]) == ["a0000x", "a8", "a9"]
            assert found("a", 2, namespaces=["x", "y"]) == ["a0000x", "a8"]
            assert found("a0000", 10, namespaces=["x"]) == ["a0000x"]
            assert found("", 10, namespaces=["x"]) == ["a0000x", "a9", "b", "of-a1", "of-b1"]
            assert found("a", 10, namespaces=["nowhere"]) == found("a", 10, namespaces=[]) == []
            assert found("a", 10, Group, ["x", "y"]) == ["a1", "a2"]
            assert found("", 10, Group, ["x"]) == ["a1", "b1"]

    def test_counts_follow_every_change(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"), new_job("c", queue="q"), new_job("d", namespace="x"))
        harness.complete(harness.take())
        harness.take()
        expected = [
            QueueCount("", "default", JobStatus.COMPLETED, 1),
            QueueCount("", "default", JobStatus.RUNNING, 1),
            QueueCount("", "q", JobStatus.QUEUED, 1),
            QueueCount("x", "default", JobStatus.QUEUED, 1),
        ]
        with harness.engine.read() as view:
            assert list(view.counts()) == expected
        harness.restart()
        with harness.engine.read() as view:
            assert list(view.counts()) == expected

    def test_what_is_not_there_is_not_found(self, harness: Harness) -> None:
        with pytest.raises(JobNotFound):
            harness.job("nowhere")
        assert list(harness.runs("nowhere")) == []
        with harness.engine.read() as view:
            assert view.get(Job, "nowhere") is None
            assert view.last_run(JobId("nowhere")) is None
            assert view.run_by_token(JobId("nowhere"), Token(1)) is None
            assert list(view.successors(JobId("nowhere"))) == []

    def test_a_new_store_is_empty(self, harness: Harness) -> None:
        with harness.engine.read() as view:
            assert (view.seq, list(view.counts()), list(view.jobs(JobQuery()))) == (0, [], [])
            assert [view.next_due(lane) for lane in Lane] == [None] * len(Lane)
            assert (view.edge("", "default", 0, last=True), list(view.bands("", "default"))) == (None, [])
            assert (view.get(Authority, AUTHORITY) or Authority()) == Authority()

    def test_lanes_show_what_is_due_earliest_first_then_by_id(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("b", delay_s=5), new_job("a", delay_s=5), new_job("c", delay_s=2))
        with harness.engine.read() as view:
            assert [job.job_id for job in view.due(Lane.DELAYED, harness.after(4)) if isinstance(job, Job)] == ["c"]
            everything = [job.job_id for job in view.due(Lane.DELAYED, harness.after(5)) if isinstance(job, Job)]
            assert everything == ["c", "a", "b"]
            assert view.next_due(Lane.DELAYED) == harness.after(2)

    @pytest.mark.parametrize(("lane", "when"), [(Lane.LEASE, 30), (Lane.TTL, 40), (Lane.KEY, 60)])
    def test_each_lane_knows_its_next_time(self, harness: Harness, lane: Lane, when: float) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"), new_job("c"), new_job("d", ttl_s=40))
        first, second, _ = harness.lease(3)
        harness.enqueue("e", key="k", key_hold="window", key_window_s=60)
        harness.advance(1)
        harness.complete(first)
        harness.advance(1)
        harness.fail(second, fatal=True)
        with harness.engine.read() as view:
            assert view.next_due(lane) == harness.after(when)

    def test_runs_are_listed_oldest_first_and_found_by_token(self, harness: Harness) -> None:
        harness.enqueue("a")
        tokens = []
        for _ in range(3):
            tokens.append(harness.take().token)
            harness.advance(30)
        with harness.engine.read() as view:
            assert [run.token for run in view.runs(A)] == tokens
            found = [view.run_by_token(A, token) for token in tokens]
            assert [run.run_no for run in found if run is not None] == [1, 2, 3]
            last = view.last_run(A)
            assert last is not None
            assert last.run_no == 3

    def test_tables_are_walked_in_the_order_of_their_keys(self, harness: Harness) -> None:
        names = ["b", "a", "Z", "é", "10", "9"]
        for name in names:
            harness.enqueue(name, key=name, namespace="x" if name == "Z" else "")
        harness.lease(10)
        with harness.engine.read() as view:
            assert [job.job_id for job in view.all(Job)] == sorted(names)
            runs = [run.run_id for run in view.all(Run)]
            assert runs == sorted(runs)
            held = [(key.namespace, key.unique_key) for key in view.all(HeldKey)]
            assert held == sorted(held)

    def test_a_view_does_not_change_while_it_is_open(self, harness: Harness) -> None:
        harness.enqueue("a")
        with harness.engine.read() as view:
            before = (view.seq, [job.status for job in view.all(Job)])
            assert (view.seq, [job.status for job in view.all(Job)]) == before
        harness.take()
        with harness.engine.read() as view:
            assert [job.status for job in view.all(Job)] == [JobStatus.RUNNING]

    def test_neighbours_and_edges_of_a_band(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", delay_s=60), new_job("c"), new_job("x", priority=1))
        with harness.engine.read() as view:
            b = harness.job("b")
            before, after = view.beside(b, after=False), view.beside(b, after=True)
            assert before is not None
            assert after is not None
            assert (before.job_id, after.job_id) == ("a", "c")
            assert view.beside(harness.job("a"), after=False) is None
            assert view.beside(harness.job("c"), after=True) is None
            assert view.beside(harness.job("x"), after=True) is None
            assert (view.edge("", "default", 0, last=False), view.edge("", "default", 0, last=True)) == (100, 300)
            assert list(view.bands("", "default")) == [-1, 0]
