"""`GET /metrics`: what a coordinator counts, as Prometheus reads it. Labels never hold ids, keys or payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from holdfast.engine.commit_stats import Counts
from holdfast.errors import Forbidden
from holdfast.journal.stats import JournalStats
from holdfast.model.jobs import JobStatus
from holdfast.rules.access.roles import may_read_all, what_it_takes
from holdfast.stores.protocol import Durability, Journalling
from holdfast.web.coordinator.coordinator import Coordinator, coordinator_of
from holdfast.web.coordinator.store_counts import Found
from holdfast.web.middleware.auth import access_of
from holdfast.web.prometheus import CONTENT_TYPE, Family, exposed, one

_STATES = ("open", "full", "failed", "closed")
_DURABILITIES = ("full", "relaxed")


async def get_metrics(request: Request) -> Response:
    """Give all figures."""
    access, coordinator = access_of(request), coordinator_of(request)
    if not may_read_all(access):
        raise Forbidden(f"{access.name} may not read metrics.", hint=what_it_takes(access, None))
    found = await coordinator.in_thread(coordinator.census.look)
    return Response(exposed(families(coordinator, found)), media_type=CONTENT_TYPE)


def families(coordinator: Coordinator, found: Found) -> Iterator[Family]:
    """Walk all figures there are."""
    yield from _there_is(found)
    yield from _happened(coordinator.counts)
    engine = coordinator.engine
    yield one("holdfast_feed_seq", "gauge", "Number of the last event.", max(found.seq, coordinator.bell.seq))
    yield Family(
        "holdfast_clock_steps_total",
        "counter",
        "Steps of the wall clock against the monotonic one.",
        [((direction,), count) for direction, count in engine.time.steps.items()],
        ("direction",),
    )
    polls = coordinator.lobby.waiting + coordinator.bell.waiting
    yield one("holdfast_longpolls_open", "gauge", "Requests and streams that wait for something to happen.", polls)
    relaxed = engine.store.promises.durability is not Durability.SYNC
    yield one("holdfast_durability_relaxed", "gauge", "1 if an answer may be lost with the power.", relaxed)
    if coordinator.restarts is not None:
        text = "How often this store was served before, by processes that are gone."
        yield one("holdfast_restarts_total", "counter", text, coordinator.restarts)
    if isinstance(engine.store, Journalling):
        yield from _journal(engine.store.journal_stats())


def _there_is(found: Found) -> Iterator[Family]:
    jobs = list(found.jobs.items())
    yield Family("holdfast_jobs", "gauge", "Jobs there are.", jobs, ("queue", "status"))
    waited = [((queue,), seconds) for queue, seconds in found.oldest.items()]
    text = "Since when the oldest job at the head of a queue could run and does not."
    yield Family("holdfast_queue_oldest_seconds", "gauge", text, waited, ("queue",))
    running = sum(count for (_, status), count in found.jobs.items() if status == JobStatus.RUNNING.value)
    yield one("holdfast_leases_active", "gauge", "Jobs under a lease.", running)
    states = [((state,), count) for state, count in found.workers.items()]
    yield Family("holdfast_workers", "gauge", "Workers that have shown themselves.", states, ("state",))
    if found.store_bytes is not None:
        yield one("holdfast_store_bytes", "gauge", "Bytes of the store on its disk.", found.store_bytes)


def _happened(counts: Counts) -> Iterator[Family]:
    yield one("holdfast_wait_seconds", "histogram", "From due to leased.", counts.wait_seconds.copy())
    yield one("holdfast_run_seconds", "histogram", "From leased to the end of the run.", counts.run_seconds.copy())
    yield one("holdfast_lease_granted_total", "counter", "Leases granted.", counts.granted)
    yield one("holdfast_lease_extended_total", "counter", "Leases extended, where that was written.", counts.extended)
    yield _by("holdfast_lease_expired_total", "Leases that time ended.", counts.expired, "reason")
    reports = sorted(counts.reports.items())
    yield Family("holdfast_reports_total", "counter", "Reports of workers.", reports, ("kind", "reply"))
    text = "Reports that had been committed before."
    yield one("holdfast_duplicate_reports_total", "counter", text, counts.duplicate_reports)
    text = "Reports of success on a lease that was lost: work that is done twice."
    yield one("holdfast_duplicate_executions_total", "counter", text, counts.duplicate_executions)
    yield _by("holdfast_retries_total", "Automatic retries.", counts.retries, "mode")
    yield one("holdfast_dead_total", "counter", "Jobs that ended DEAD.", counts.dead)
    yield _by("holdfast_rejected_total", "Commands that were refused.", counts.rejected, "code")
    text = "From opening a batch to its being durable."
    yield one("holdfast_commit_seconds", "histogram", text, counts.commit_seconds.copy())
    yield one("holdfast_commit_batch_size", "histogram", "Commands of a commit.", counts.commit_batch_size.copy())


def _by(name: str, text: str, counted: Counter[str], label: str) -> Family:
    return Family(name, "counter", text, [((key,), count) for key, count in sorted(counted.items())], (label,))


def _journal(stats: JournalStats) -> Iterator[Family]:
    def gauge(name: str, text: str, value: float) -> Family:
        return one(f"holdfast_journal_{name}", "gauge", text, value)

    def counter(name: str, text: str, value: float) -> Family:
        return one(f"holdfast_journal_{name}", "counter", text, value)

    yield one("holdfast_journal_fsync_seconds", "histogram", "Syncs of the log.", stats.fsync_seconds)
    yield one("holdfast_journal_batch_records", "histogram", "Records of a sync.", stats.batch_records)
    yield one("holdfast_journal_batch_bytes", "histogram", "Bytes of a sync.", stats.batch_bytes)
    yield counter("bytes_written_total", "Bytes written to the log.", stats.bytes_written_total)
    yield counter("records_total", "Records written to the log.", stats.records_total)
    yield counter("flush_errors_total", "Writes and syncs that failed.", stats.flush_errors_total)
    yield gauge("checkpoint_seconds", "How long the last snapshot took.", stats.checkpoint_seconds)
    yield counter("checkpoint_failures_total", "Snapshots that failed.", stats.checkpoint_failures_total)
    last = stats.last_checkpoint_timestamp
    yield gauge("last_checkpoint_timestamp", "When the last snapshot was made.", last.timestamp() if last else 0)
    yield gauge("last_checkpoint_seq", "The last record the last snapshot holds.", stats.last_checkpoint_seq)
    yield gauge("snapshot_bytes", "Bytes of the last snapshot.", stats.snapshot_bytes)
    yield gauge("replay_seconds", "How long reading the log took at the start.", stats.replay_seconds)
    yield gauge("replay_records", "Records that were read at the start.", stats.replay_records)
    yield gauge("log_bytes", "Bytes of the log.", stats.log_bytes)
    yield gauge("segments", "Files of the log.", stats.segments)
    yield gauge("appended_seq", "The last record that was appended.", stats.appended_seq)
    yield gauge("durable_seq", "The last record that is durable.", stats.durable_seq)
    yield _state("state", "How the log is: 1 for the one it is in.", _STATES, stats.state)
    yield _state(
        "durability", "What an acknowledgement survives: 1 for the one it is.", _DURABILITIES, stats.durability
    )


def _state(name: str, text: str, known: tuple[str, ...], current: str) -> Family:
    values = [((state,), float(state == current)) for state in dict.fromkeys((*known, current))]
    return Family(f"holdfast_journal_{name}", "gauge", text, values, (name,))
