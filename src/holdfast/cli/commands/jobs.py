"""`holdfast jobs`: look at jobs, make them, change their fate."""

from __future__ import annotations

from math import inf
from typing import Any, Literal

import click

from holdfast.cli.commands.job_logs import logs
from holdfast.cli.param_types import Duration, Moment, Word, moment_or_none, new_id, new_ids, payload_of, tags_of
from holdfast.cli.render import job_rows
from holdfast.cli.render.output import LIST_FORMS, Record, encoded, output_for, output_options
from holdfast.cli.render.terminal import put, safe, say
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.render.worker_rows import progresses
from holdfast.cli.store_access.ids import find, find_all, given
from holdfast.cli.store_access.mutations import actor, confirm, dry_run_option, reason_option, settle, yes_option
from holdfast.cli.store_access.target import Target, now, store_options, target
from holdfast.cli.store_access.visibility import SeenReasons, reasons_seen, say_left_out, workers_seen
from holdfast.clock import SystemClock
from holdfast.engine.blob_content import fetch
from holdfast.engine.engine import located
from holdfast.engine.reasons import Reasons
from holdfast.errors import InvalidArguments, JobNotFound
from holdfast.model.commands import Bury, Cancel, Command, Enqueue, Move, NewJob, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, KeyHold, KeyScope, RetryMode
from holdfast.model.outcomes import Enqueued, Refusal
from holdfast.model.payloads import NULL
from holdfast.rules.jobs.retry import last_of
from holdfast.stores.deadline import keeping_to
from holdfast.stores.protocol import JobQuery, Store, View

_ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")
_id = click.argument("job_id", metavar="ID")
_params = click.option("--params", metavar="JSON", help="The task's parameters, a JSON object; - reads stdin.")


@click.group()
def jobs() -> None:
    """Look at jobs, make them, change their fate.

    An ID may be shortened as long as it stays unambiguous; - reads ids from stdin.
    """


jobs.add_command(logs)


# --- looking ----------------------------------------------------------------------------------------------------------


@jobs.command(cls=WatchCommand)
@click.option("--status", type=Word(JobStatus), help="Only these.")
@click.option("--queue", help="Only of this queue.")
@click.option("--task", help="Only of this task.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(
    *, status: JobStatus | None, queue: str | None, task: str | None, limit: int, watch: float | None, output: str
) -> None:
    """List jobs, newest first, each with the reason why it is where it is."""
    place, out = target(), output_for(output)
    query = JobQuery(namespace=place.name, status=status, queue=queue, job_type=task, limit=limit)

    def look(view: View, store: Store) -> Shown:
        at = now()
        reasons = reasons_seen(view, store, at)
        found = [(job, reasons.of(job)) for job in view.jobs(query)]
        records = [job_rows.row_record(job, reason) for job, reason in found]
        return records, lambda: job_rows.job_table(found, at, out.screen)

    show(place, out, watch, look, key="job_id")


@jobs.command("show", cls=WatchCommand)
@_ids
@click.option("--params", "only", flag_value="params", help="Print the parameters alone, as JSON.")
@click.option("--result", "only", flag_value="result", help="Print the result alone, as JSON.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def show_jobs(*, ids: tuple[str, ...], only: str | None, watch: float | None, output: str) -> None:
    """Show jobs whole: reason, parameters, result, runs. With -o json one job is an object, several are a list."""
    place, out, words = target(), output_for(output), given(ids)
    if only is not None:
        _print_payloads(place, words, only)
        return
    with_payloads = out.form in ("json", "jsonl") or (watch is not None and not out.screen.is_terminal)

    def look(view: View, store: Store) -> Shown:
        at, workers = now(), workers_seen(store)
        reasons, said = SeenReasons(view, store, at, workers), progresses(workers or ())
        known = [
            (job, reasons.of(job), [located(run, store.logs) for run in view.runs(job.job_id)])
            for job in find_all(view, place, words)
        ]
        found = [job_rows.Known(*one, said.get(one[2][-1].run_id) if one[2] else None) for one in known]
        if workers is None and any(one.job.status is JobStatus.RUNNING for one in found):
            say_left_out("how far a run is")

        def page() -> list[str]:
            pages = [job_rows.job_page(known, at, out.screen) for known in found]
            return [line for number, page in enumerate(pages) for line in ([""] * bool(number) + page)]

        # Content beside the records is fetched only for those who get it whole.
        fetched = (lambda raw: fetch(store, raw)) if with_payloads else (lambda raw: raw)
        return [job_rows.full_record(known, fetched) for known in found], page

    show(place, out, watch, look, key="job_id", one=len(words) == 1)


def _print_payloads(place: Target, words: list[str], field: str) -> None:
    with place.reading() as reader:
        with reader.look() as view:
            payloads = [getattr(job, field) for job in find_all(view, place, words)]
        for payload in payloads:
            put(encoded(fetch(reader.store, payload)))


@jobs.command()
@_ids
@click.option("--timeout", type=Duration(), help="Give up waiting after so long; the jobs go on.")
@output_options(*LIST_FORMS)
@store_options
def wait(*, ids: tuple[str, ...], timeout: float | None, output: str) -> None:
    """Wait until jobs have ended, and their automatic retries with them.

    Exits 0 if all are COMPLETED, 1 if one is FAILED or DEAD, 4 if one is CANCELLED, 5 if --timeout came first.
    """
    place, out = target(), output_for(output)
    ended = _wait(place, given(ids), timeout)
    with place.look() as view:
        at = now()
        found = [(job, Reasons(view, at).of(job)) for job in ended]
    records = [job_rows.row_record(job, reason) for job, reason in found]
    out.records(records, lambda: job_rows.job_table(found, at, out.screen))
    statuses = {job.status for job in ended}
    if statuses & {JobStatus.FAILED, JobStatus.DEAD}:
        raise click.exceptions.Exit(1)
    if JobStatus.CANCELLED in statuses:
        raise click.exceptions.Exit(4)


def _wait(place: Target, words: list[str], timeout: float | None) -> list[Job]:
    clock = SystemClock()
    deadline = inf if timeout is None else clock.monotonic() + timeout
    with keeping_to(deadline), place.reading() as reader:
        with reader.look() as view:
            ids = [job.job_id for job in find_all(view, place, words)]
        while True:
            left = None if deadline == inf else deadline - clock.monotonic()
            with reader.look() as view:
                seq, found = view.seq, [_last(view, job_id) for job_id in ids]
                going = [job for job in found if not job.has_ended]
                if going and left is not None and left <= 0:
                    job = going[0]
                    why = reasons_seen(view, reader.store, now()).of(job).sentence
                    raise TimeoutError(f"job {job.job_id} is {job.status} after {timeout:g} s: {why}. It goes on.")
            if not going:
                return found
            reader.wait(seq, left)


def _last(view: View, job_id: JobId) -> Job:
    """Give the job, or the last of its automatic retries. Raises JobNotFound."""
    job = last_of(view, job_id)
    if job is None:
        raise JobNotFound(f"job {job_id} is no longer kept; how it ended is not known.", job_id=job_id)
    return job


# --- making -----------------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("task")
@_params
@click.option("--id", "job_id", help="The job's own id; by default a new one.")
@click.option("--queue", help="Where it waits; by default `default`.")
@click.option("--priority", type=int, help="-100 to 100, higher first.")
@click.option("--delay", "delay_s", type=Duration(), help="Not before so long from now.")
@click.option("--at", "not_before", type=Moment(), help="Not before this time.")
@click.option("--ttl", "ttl_s", type=Duration(), help="Skipped unless started within it.")
@click.option("--timeout", "timeout_s", type=Duration(), help="Longest single execution.")
@click.option("--lease", "lease_s", type=Duration(), help="Length of a lease.")
@click.option("--max-attempts", type=int, help="Executions that may report, in total.")
@click.option("--max-expiries", type=int, help="Lost leases after which it is DEAD.")
@click.option("--retry", "retry_mode", type=Word(RetryMode), help="What an automatic retry does.")
@click.option("--key", help="Makes it unique.")
@click.option("--key-scope", type=Word(KeyScope), help="Among which jobs.")
@click.option("--key-hold", type=Word(KeyHold), help="For how long.")
@click.option("--key-window", "key_window_s", type=Duration(), help="Length of a window hold.")
@click.option("--on-conflict", type=click.Choice(["return", "reject", "replace"]), help="If the key is held.")
@click.option("--limit-key", help="Shares places with all jobs that carry it.")
@click.option("--key-limit", type=int, help="How many jobs with its limit key may run at a time.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="May be given often.")
@dry_run_option
@output_options("ids", "table", "json", "jsonl")
@store_options
def add(*, task: str, params: str | None, tags: tuple[str, ...], dry_run: bool, output: str, **chosen: Any) -> None:
    """Make a job. Its id is printed when it is durable; the store is made if there is none."""
    place, out = target(), output_for(output)
    fields = {name: value for name, value in chosen.items() if value is not None}
    fields["not_before"] = moment_or_none(fields.get("not_before"))
    job = NewJob(
        **{"job_id": JobId(new_id()), **fields},
        job_type=task,
        namespace=place.name,
        params=payload_of(params or "{}"),
        tags=tags_of(tags) or None,
        submitted_by=None,
    )
    (outcome,) = place.send([Enqueue(jobs=(job,), actor=actor())], dry_run=dry_run, create=not dry_run)
    if isinstance(outcome, Refusal):
        raise outcome.error()
    assert isinstance(outcome, Enqueued)
    (submitted,) = outcome.jobs
    record: Record = {
        "job_id": submitted.job_id,
        "created": submitted.created,
        **({"dry_run": True} if dry_run else {}),
    }
    out.record(record, lambda: [f"{safe(submitted.job_id)}  {'created' if submitted.created else 'was there before'}"])
    if not submitted.created:
        say(f"holdfast: job {safe(submitted.job_id)} was there before; none was made")
    if dry_run:
        say("Nothing was changed: --dry-run.")


# --- changing ---------------------------------------------------------------------------------------------------------


@jobs.command()
@_id
@_params
@click.option("--queue", help="Where it waits.")
@click.option("--priority", type=int, help="-100 to 100, higher first.")
@click.option("--at", "not_before", type=Moment(), help="Not before this time; `now` for no delay.")
@click.option("--expires-at", type=Moment(), help="Skipped unless started by then.")
@click.option("--timeout", "timeout_s", type=Duration(), help="Longest single execution.")
@click.option("--lease", "lease_s", type=Duration(), help="Length of a lease.")
@click.option("--max-attempts", type=int, help="Executions that may report, in total.")
@click.option("--max-expiries", type=int, help="Lost leases after which it is DEAD.")
@click.option("--limit-key", help="Shares places with all jobs that carry it.")
@click.option("--key-limit", type=int, help="How many jobs with its limit key may run at a time.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Replaces all tags.")
@dry_run_option
@output_options(*LIST_FORMS)
@store_options
def update(
    *,
    job_id: str,
    params: str | None,
    tags: tuple[str, ...],
    dry_run: bool,
    output: str,
    **chosen: Any,
) -> None:
    """Edit a job that waits. Another queue or priority puts it at the back there."""
    place, out = target(), output_for(output)
    fields = {name: value for name, value in chosen.items() if value is not None}
    for name in ("not_before", "expires_at"):
        if name in fields:
            fields[name] = moment_or_none(fields[name])
    if tags:
        fields["tags"] = tags_of(tags)
    if params is not None:
        fields["params"] = payload_of(params)
    if not fields:
        raise InvalidArguments("there is nothing to change.", hint="See `holdfast jobs update --help`.")
    with place.look() as view:
        job = find(view, place, job_id)
    command = Update(job_id=job.job_id, changes=JobChanges(**fields), actor=actor())
    settle(place, out, [(job.job_id, command)], "updated", dry_run=dry_run)


@jobs.command()
@_ids
@_params
@click.option("--priority", type=int, help="Another priority than before.")
@dry_run_option
@output_options("ids", "table", "json", "jsonl")
@store_options
def retry(*, ids: tuple[str, ...], params: str | None, priority: int | None, dry_run: bool, output: str) -> None:
    """Run ended jobs again, each as a new job with a full budget. Prints the new ids."""
    place, out = target(), output_for(output)
    other = NULL if params is None else payload_of(params)
    found = _found(place, ids)
    draws = new_ids()
    commands: list[tuple[str, Command]] = []
    for job in found:
        new_id = JobId(draws.new_id())
        retried = Retry(job_id=job.job_id, new_job_id=new_id, priority=priority, actor=actor(), params=other)
        commands.append((new_id, retried))
    settle(place, out, commands, "created", dry_run=dry_run)


@jobs.command()
@_ids
@click.option("--force", is_flag=True, help="Revoke the lease of a running job at once.")
@reason_option
@yes_option
@dry_run_option
@output_options(*LIST_FORMS)
@store_options
def cancel(*, ids: tuple[str, ...], force: bool, reason: str, yes: bool, dry_run: bool, output: str) -> None:
    """End jobs that wait; ask running ones to stop."""
    place, out = target(), output_for(output)
    found = [job.job_id for job in _found(place, ids)]
    if force or len(found) > 1:
        confirm("Cancel", found, yes=yes or dry_run)
    commands = [(job_id, Cancel(job_id=job_id, reason=reason, force=force, actor=actor())) for job_id in found]
    settle(place, out, commands, "cancelled", dry_run=dry_run)


@jobs.command()
@_ids
@reason_option
@yes_option
@dry_run_option
@output_options(*LIST_FORMS)
@store_options
def bury(*, ids: tuple[str, ...], reason: str, yes: bool, dry_run: bool, output: str) -> None:
    """Declare jobs DEAD, whether they wait or run."""
    place, out = target(), output_for(output)
    found = [job.job_id for job in _found(place, ids)]
    confirm("Bury", found, yes=yes or dry_run)
    commands = [(job_id, Bury(job_id=job_id, reason=reason, actor=actor())) for job_id in found]
    settle(place, out, commands, "buried", dry_run=dry_run)


@jobs.command()
@_id
@click.option("--before", metavar="ID", help="Ahead of this job.")
@click.option("--after", metavar="ID", help="Behind this job.")
@click.option("--to", type=click.Choice(["first", "last"]), help="To an end of its priority.")
@dry_run_option
@output_options(*LIST_FORMS)
@store_options
def move(
    *,
    job_id: str,
    before: str | None,
    after: str | None,
    to: Literal["first", "last"] | None,
    dry_run: bool,
    output: str,
) -> None:
    """Give a job that waits another place among those of its queue and priority."""
    place, out = target(), output_for(output)
    with place.look() as view:
        job = find(view, place, job_id)
        ahead = None if before is None else find(view, place, before).job_id
        behind = None if after is None else find(view, place, after).job_id
    command = Move(job_id=job.job_id, before=ahead, after=behind, to=to, actor=actor())
    settle(place, out, [(job.job_id, command)], "moved", dry_run=dry_run)


def _found(place: Target, ids: tuple[str, ...]) -> list[Job]:
    with place.look() as view:
        return find_all(view, place, given(ids))
