"""How the demo is shown: a story line by line, a bar and the workers under it, a table at the end.

The story goes to stderr, the table to stdout. Where nobody watches, the bar is a line now and then.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from holdfast.cli.demo.verify import Evidence, Sight, Verdict
from holdfast.cli.demo.worker_processes import Hand
from holdfast.cli.render import status_labels
from holdfast.cli.render.output import Output, Record
from holdfast.cli.render.tables import width
from holdfast.cli.render.terminal import Screen, put, safe, say, screen
from holdfast.model.jobs import Job, JobStatus

#: Cells of the bar.
BAR = 40
#: Lines of the bar where nobody watches, over the whole demo.
LINES = 4
#: Jobs of the dead worker that are named; the others are counted.
NAMED = 4


@contextmanager
def stage(url: str) -> Iterator[Shown]:
    """Show a story that takes place on this store."""
    looks = screen("auto", sys.stderr)
    shown: Shown = Watched(looks) if looks.can_redraw else Shown(looks)
    shown.line("", looks.faint(f"on {safe(url)}"))
    try:
        yield shown
    finally:
        shown.close()


class Shown:
    """The story where nobody watches: plain lines."""

    def __init__(self, looks: Screen) -> None:
        self.looks = looks
        self._part = 0

    def line(self, mark: str, text: str) -> None:
        """Write one line of the story."""
        say(f"{mark or ' '} {text}")

    def close(self) -> None:
        """Show no more."""

    def mark(self, look: status_labels.Look) -> str:
        """Give the mark of a state."""
        return self.looks.glyph(look)

    # --- the story ----------------------------------------------------------------------------------------------------

    def acknowledged(self, jobs: int) -> None:
        """Tell that so many jobs are durable."""
        self.line(self.mark(status_labels.COMPLETED), f"{jobs} jobs are enqueued, durable before the call returned")

    def works(self, hands: list[Hand], jobs: list[Job]) -> None:
        """Show the jobs as they are now."""
        done = sum(job.status is JobStatus.COMPLETED for job in jobs)
        part = LINES * done // len(jobs)
        if part > self._part:
            self._part = part
            at_work = sum(not hand.killed for hand in hands)
            self.line(self.mark(status_labels.RUNNING), f"{done} of {len(jobs)} jobs done, {at_work} workers")

    def killed(self, hand: Hand, held: list[Job]) -> None:
        """Tell that a worker was killed with these jobs in its hands."""
        self.line(
            self.mark(status_labels.DEAD),
            f"{hand.name} (pid {hand.pid}) killed with SIGKILL; it held {_jobs(len(held))}:",
        )
        for job in held[:NAMED]:
            picture = msgspec.json.decode(job.params)["picture"]
            self.line("", self.looks.faint(f"  {job.job_id}  picture {picture}"))
        if len(held) > NAMED:
            self.line("", self.looks.faint(f"  and {len(held) - NAMED} more"))

    def taken_over(self, seconds: float, left_s: float) -> None:
        """Tell that others have begun with all of them."""
        text = f"all of them taken over after {seconds:.1f} s; their leases had {left_s:.0f} s to go"
        self.line(self.mark(status_labels.COMPLETED), text)

    def done(self, seconds: float) -> None:
        """Tell that every job has ended."""
        self.line(self.mark(status_labels.COMPLETED), f"every job has ended, after {seconds:.1f} s")


class Watched(Shown):
    """The story on a terminal: a bar and the workers below the lines."""

    def __init__(self, looks: Screen) -> None:
        super().__init__(looks)
        self._console = Console(
            stderr=True,
            highlight=False,
            no_color=not looks.colour,
            color_system=("truecolor" if looks.true_colour else "standard") if looks.colour else None,
        )
        bar = BarColumn(
            min(BAR, max(10, looks.width - 30)),
            style=self._style(status_labels.READY),
            complete_style=self._style(status_labels.RUNNING),
            finished_style=self._style(status_labels.COMPLETED),
        )
        figures = TextColumn("{task.completed:>4.0f} of {task.total:.0f}  {task.elapsed:>3.0f} s")
        self._bar = Progress(TextColumn(" "), bar, figures, console=self._console)
        self._task = self._bar.add_task("", total=1)
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def _style(self, look: status_labels.Look) -> str:
        if not self.looks.colour:
            return "default"
        return (look.light if self.looks.light else look.dark) if self.looks.true_colour else look.named

    def line(self, mark: str, text: str) -> None:
        """Write one line above the bar."""
        self._console.print(Text.from_ansi(f"{mark or ' '} {text}"), soft_wrap=True)

    def works(self, hands: list[Hand], jobs: list[Job]) -> None:
        """Draw the bar and the workers."""
        done = sum(job.status is JobStatus.COMPLETED for job in jobs)
        self._bar.update(self._task, completed=done, total=len(jobs))
        busy = Counter(job.worker_id for job in jobs if job.status is JobStatus.RUNNING)
        lines = [Text.from_ansi(self._hand(hand, busy[hand.worker_id])) for hand in hands]
        self._live.update(Group("", self._bar, *lines, ""), refresh=True)

    def _hand(self, hand: Hand, busy: int) -> str:
        if hand.killed:
            look, text = status_labels.DEAD, "killed"
        else:
            look, text = (status_labels.RUNNING, f"{_jobs(busy)} in hand") if busy else (status_labels.READY, "idle")
        return f"  {self.mark(look)} {hand.name}  {self.looks.faint(f'pid {hand.pid}')}  {text}"

    def close(self) -> None:
        """Leave the last picture standing."""
        self._live.stop()


# --- the end ----------------------------------------------------------------------------------------------------------


def tell(evidence: Evidence, verdict: Verdict, output: Output) -> None:
    """Write what was counted, and the verdict."""
    for line in ["", *_table(evidence, output.screen), "", *_verdict(evidence, verdict, output.screen)]:
        put(line)


def record_of(evidence: Evidence, verdict: Verdict) -> Record:
    """Give the same as programs read it."""
    end = evidence.at_end
    return {
        "problems": list(verdict.problems),
        "acknowledged": len(evidence.acknowledged),
        "completed": end.count(JobStatus.COMPLETED),
        "runs": len(end.runs),
        "lost_runs": len(end.lost()),
        "executions": end.executions(),
        "repeated": end.repeated(),
        "held_by_the_dead": list(evidence.held),
        "takeover_s": verdict.takeover_s,
    }


def _table(evidence: Evidence, looks: Screen) -> list[str]:
    before, after = evidence.at_kill, evidence.at_end
    waiting, running, done = JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.COMPLETED

    def both(title: str, count: Callable[[Sight], int]) -> tuple[str, str, str]:
        return title, str(count(before)), str(count(after))

    rows = [
        ("", "at the kill", "at the end"),
        ("jobs acknowledged", str(len(evidence.acknowledged)), str(len(evidence.acknowledged))),
        both("waiting", lambda sight: sight.count(waiting)),
        both("running", lambda sight: sight.count(running)),
        both("completed", lambda sight: sight.count(done)),
        both("runs in the store", lambda sight: len(sight.runs)),
        both("  of them LOST", lambda sight: len(sight.lost())),
        both("executions seen from outside", Sight.executions),
        both("  of them repeated", Sight.repeated),
    ]
    left = max(width(row[0]) for row in rows)
    laid = [f"  {title.ljust(left)}  {a:>11}  {b:>11}" for title, a, b in rows]
    return [looks.faint(laid[0]), *laid[1:]]


def _verdict(evidence: Evidence, verdict: Verdict, looks: Screen) -> list[str]:
    if verdict.problems:
        problems = [f"{looks.glyph(status_labels.FAILED)} {problem}" for problem in verdict.problems]
        return [*problems, looks.paint(f"Not as promised: {len(problems)} findings.", status_labels.FAILED)]
    jobs, repeated = len(evidence.acknowledged), evidence.at_end.repeated()
    again = "1 execution was" if repeated == 1 else f"{repeated} executions were"
    lines = [
        f"{jobs} acknowledged, {jobs} completed with the right result; nothing was lost",
        f"{again} repeated, each after a run that was LOST with its worker",
        f"taken over after {verdict.takeover_s:.2f} s, asked for within {verdict.within_s:g} s",
    ]
    return [f"{looks.glyph(status_labels.COMPLETED)} {line}" for line in lines]


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
