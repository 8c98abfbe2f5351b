"""`holdfast jobs logs ID`: what a run said, once or while it says it.

Lines are soft: they ring no bell, so following looks for them a few times a second. Following goes through the retries
of the job and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.cli.ids import find
from holdfast.cli.output import Record, encoded, output_for, output_options
from holdfast.cli.target import Reader, Target, store_options, target
from holdfast.cli.terminal import Screen, put, safe, say
from holdfast.cli.words import FAILED, STUCK
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, Run
from holdfast.model.logs import NumberedLine

#: Seconds between two looks for new lines.
PAUSE_S = 0.25
#: Lines read at a time.
PAGE = 1000
_LOOKS = {"WARNING": STUCK, "ERROR": FAILED, "CRITICAL": FAILED, "stderr": FAILED}


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--run", "run_no", type=click.IntRange(1), help="Of this run; by default of the last one.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended, through its retries.")
@output_options("table", "json", "jsonl")
@store_options
def logs(*, job_id: str, run_no: int | None, follow: bool, output: str) -> None:
    """Print what a job's run wrote: its log, and what it printed. With --follow JSON comes as lines."""
    place, out = target(), output_for(output)
    with place.reading() as reader:
        with reader.look() as view:
            job = find(view, place, job_id)
        found = _followed(reader, job.job_id, run_no) if follow else _read(reader, job, run_no)
        records: list[Record] = []
        for run, line in found:
            if out.form == "table":
                put(_shown(line, out.screen))
            elif out.form == "jsonl" or follow:
                put(encoded(_record(run, line)))
            else:
                records.append(_record(run, line))
    if out.form == "json" and not follow:
        put(encoded(records))


def _read(reader: Reader, job: Job, run_no: int | None) -> Iterator[tuple[Run, NumberedLine]]:
    """Walk what is there."""
    _, _, run = _look(reader, job.job_id, run_no)
    if run is None:
        say(f"holdfast: job {safe(job.job_id)} has not run yet")
        return
    count = 0
    for line in _new(reader, run, 0):
        count += 1
        yield run, line
    if not count:
        say(f"holdfast: run {run.run_no} of job {safe(job.job_id)} wrote nothing")


def _followed(reader: Reader, job_id: JobId, run_no: int | None) -> Iterator[tuple[Run, NumberedLine]]:
    """Walk what is there and what comes, until the run that was named has ended, or else the job."""
    at, after = run_no, 0
    while True:
        # First the state, then the lines: what was written before the end is read by whoever saw the end.
        seq, job, run = _look(reader, job_id, at)
        if run is not None:
            at = run.run_no
            for line in _new(reader, run, after):
                after = line.line_no
                yield run, line
        if run is not None and run.status is not None and run_no is None and run.run_no < job.executions:
            at, after = run.run_no + 1, 0
            say(f"holdfast: run {at} of {safe(job_id)}")
            continue
        if job.has_ended or (run_no is not None and run is not None and run.status is not None):
            return
        reader.wait(seq, PAUSE_S)


def _look(reader: Reader, job_id: JobId, run_no: int | None) -> tuple[int, Job, Run | None]:
    """Give how far the store is, the job, and the run of that number, or the newest. Raises RunNotFound."""
    from holdfast.app.lines import run_of  # noqa: PLC0415 - `--help` starts without the application's room

    with reader.look() as view:
        job = find(view, Target("", None), job_id)
        return view.seq, job, run_of(view.runs(job_id), job_id, run_no)


def _new(reader: Reader, run: Run, after: int) -> Iterator[NumberedLine]:
    while found := reader.store.logs.read(run.run_id, after, PAGE):
        after = found[-1].line_no
        yield from found


def _record(run: Run, numbered: NumberedLine) -> Record:
    line = numbered.line
    return {
        "job_id": run.job_id,
        "run_id": run.run_id,
        "run_no": run.run_no,
        "line_no": numbered.line_no,
        "at": line.at,
        "stream": line.stream,
        "level": line.level,
        "text": line.text,
    }


def _shown(numbered: NumberedLine, screen: Screen) -> str:
    """Lay out one line; on a terminal its time of day is enough. Nothing is cut."""
    line = numbered.line
    at = line.at[11:23] if screen.is_terminal else line.at
    origin = line.level or line.stream
    look = _LOOKS.get(origin)
    word = origin.ljust(7)
    return f"{screen.faint(at)}  {word if look is None else screen.paint(word, look)}  {safe(line.text)}"
