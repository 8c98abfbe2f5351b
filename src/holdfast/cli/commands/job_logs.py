"""`holdfast jobs logs ID`: what a run said, once or while it says it.

How lines are found and followed is `engine.log_reader`; here they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.cli.render.output import Record, encoded, output_for, output_options
from holdfast.cli.render.status_labels import FAILED, STUCK
from holdfast.cli.render.terminal import Screen, put, safe, say
from holdfast.cli.store_access.ids import find
from holdfast.cli.store_access.target import store_options, target
from holdfast.engine.log_reader import Source, pages
from holdfast.model.ids import JobId
from holdfast.model.jobs import Run
from holdfast.model.logs import NumberedLine

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
    records: list[Record] = []
    with place.reading() as reader:
        with reader.look() as view:
            job = find(view, place, job_id)
        source = Source(reader.look, reader.wait, lambda: reader.store.logs)
        for run, line in _lines(source, job.job_id, run_no, follow=follow):
            if out.form == "table":
                put(_shown(line, out.screen))
            elif out.form == "jsonl" or follow:
                put(encoded(_record(run, line)))
            else:
                records.append(_record(run, line))
    if out.form == "json" and not follow:
        put(encoded(records))


def _lines(source: Source, job_id: JobId, run_no: int | None, *, follow: bool) -> Iterator[tuple[Run, NumberedLine]]:
    """Walk the lines; beside them say where another run begins, and why there are none."""
    before: Run | None = None
    for run, page in pages(source, job_id, run_no, follow=follow):
        if run is None:
            if not follow:
                say(f"holdfast: job {safe(job_id)} has not run yet")
            continue
        if before is not None and before.run_no != run.run_no:
            say(f"holdfast: run {run.run_no} of {safe(job_id)}")
        before = run
        if not page and not follow:
            say(f"holdfast: run {run.run_no} of job {safe(job_id)} wrote nothing")
        for line in page:
            yield run, line


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
    at = safe(line.at[11:23] if screen.is_terminal else line.at)
    origin = line.level or line.stream
    look = _LOOKS.get(origin)
    word = safe(origin).ljust(7)
    return f"{screen.faint(at)}  {word if look is None else screen.paint(word, look)}  {safe(line.text)}"
