"""Transcripts: what runs say, kept for workers elsewhere, and no more of it than a worker here would keep.

A worker keeps to the limits by itself; whoever else speaks may not know them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from holdfast.model.ids import RunId
from holdfast.model.logs import Allowance, LogLine, NumberedLine, storable
from holdfast.stores.sidecar.protocol import RunLogs

#: Runs whose allowance is remembered; that of another one is counted again from what is kept.
REMEMBERED = 4096
#: Lines read at a time, and bytes of a page beyond its first line.
PAGE, PAGE_BYTES = 1000, 1 << 20

Said = Sequence[tuple[RunId, LogLine]]


class Transcripts:
    """The lines of all runs of one store. For any thread; blocks."""

    def __init__(self, logs: RunLogs) -> None:
        self._logs = logs
        # Held from the count to the write: two requests for one run must not both find room.
        self._lock = threading.Lock()
        #: Those that were used last are last.
        self._allowances: OrderedDict[RunId, Allowance] = OrderedDict()

    def keep(self, lines: Said) -> None:
        """Keep lines, as far as each run has room."""
        with self._lock:
            kept: list[tuple[RunId, LogLine]] = []
            for run_id, given in lines:
                line = storable(given)
                taken = self._allowance(run_id).take(line.stream, line.level, line.text)
                if taken is not None:
                    stream, level, text = taken
                    kept.append((run_id, msgspec.structs.replace(line, stream=stream, level=level, text=text)))
            if kept:
                self._logs.add(kept)

    def page(self, run_id: RunId, after: int, limit: int) -> list[NumberedLine]:
        """Give lines behind a number: at least one, if there is one, and not many more bytes than a page has."""
        page: list[NumberedLine] = []
        size = 0
        for one in self._logs.read(run_id, after, limit):
            size += len(one.line.text)
            if page and size > PAGE_BYTES:
                break
            page.append(one)
        return page

    def _allowance(self, run_id: RunId) -> Allowance:
        found = self._allowances.get(run_id)
        if found is None:
            found = self._allowances[run_id] = self._counted(run_id)
            if len(self._allowances) > REMEMBERED:
                self._allowances.popitem(last=False)
        self._allowances.move_to_end(run_id)
        return found

    def _counted(self, run_id: RunId) -> Allowance:
        """Count what is kept of a run since before anybody remembers."""
        allowance, after = Allowance(), 0
        while not allowance.is_used_up and (lines := self._logs.read(run_id, after, PAGE)):
            after = lines[-1].line_no
            for one in lines:
                allowance.recall(one.line)
        return allowance
