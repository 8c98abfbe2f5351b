"""Check and repair: list everything that is wrong, and, asked to, keep the valid part of a damaged log.

Checking reads only. A repair is planned first, so that what would be lost can be shown; applying it takes the lock,
sets the removed bytes aside as `.bak`, and only then cuts. It never guesses: the valid prefix stays, or, by request,
the snapshot alone. Cut short by a crash it is simply run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import JournalDamaged, LogMissing, NotFound, StoreDamaged, StoreError
from holdfast.journal import backups, layout, segments, snapshots
from holdfast.journal.filesystem import FS
from holdfast.journal.fs_errors import telling
from holdfast.journal.inspection import Survey, damaged_at, last_place, survey, verify_snapshot
from holdfast.journal.layout import Identity
from holdfast.journal.opening import remove_drafts, repaired, rewrite, take_lock
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import MAX_LINE, has_more
from holdfast.journal.scan import CHUNK, BadRecord, is_torn, reading, runs, size_of
from holdfast.journal.segments import Mark, Segment
from holdfast.journal.snapshots import BadSnapshot, Header

#: How often files are listed anew that vanish while they are read; a writer removes some at most once in a checkpoint.
LOOKS = 3
#: With which every refusal to open ends; a plan does not say so of itself.
UNCHANGED = " Nothing was changed."


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is wrong, and where."""

    #: The error's code, or `torn_tail` for what the next opening cuts by itself.
    code: str
    message: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None
    offset: int | None = None
    #: The number the bad record should have had.
    seq: int | None = None

    @classmethod
    def of(cls, error: StoreError) -> Problem:
        """Describe an error of ours."""
        facts = error.facts
        place = {name: facts[name] for name in ("line", "offset", "seq") if isinstance(facts.get(name), int)}
        file = facts.get("file")
        return cls(
            code=error.code,
            message=error.message,
            remedy=error.hint,
            file=file if isinstance(file, str) else None,
            **place,  # type: ignore[arg-type]  # only the integers of `facts` are kept
        )


# --- check ------------------------------------------------------------------------------------------------------------


def check(fs: FS, root: str, options: JournalOptions, end: Mark | None = None) -> list[Problem]:
    """List every problem; changes nothing. `end` is the durable end, if the journal is open and being written to."""
    with telling(root, "checking"):
        for _ in range(LOOKS - 1):
            with suppress(FileNotFoundError):
                return _check(fs, root, options, end)
        return _check(fs, root, options, end)


def _check(fs: FS, root: str, options: JournalOptions, end: Mark | None) -> list[Problem]:
    try:
        identity = layout.read_identity(fs, root)
        if identity is None:
            layout.refuse_orphans(fs, root)
            raise NotFound(f"There is no journal at {root}.", hint="Check the path.")
    except JournalDamaged as error:
        return [Problem.of(error)]
    problems = [*_check_snapshots(fs, root, identity), *_check_segments(fs, root, end)]
    known = {problem.file for problem in problems}
    try:
        survey(fs, identity, options, root)
    except StoreError as error:
        # What no single file shows: a gap, a missing log, a version from the future.
        if error.facts.get("file") not in known or not isinstance(error, StoreDamaged):
            problems.append(Problem.of(error))
    return problems


def _check_snapshots(fs: FS, root: str, identity: Identity) -> Iterator[Problem]:
    for seq in snapshots.find(fs):
        try:
            verify_snapshot(fs, seq, identity)
        except BadSnapshot as error:
            path = snapshots.path_of(seq)
            yield Problem(
                code="snapshot_damaged",
                message=f"{root}/{path}: {error}.",
                remedy="Opening uses the one before it, if the log reaches back to it, and sets this one aside.",
                file=path,
                seq=seq,
            )


def _check_segments(fs: FS, root: str, end: Mark | None) -> Iterator[Problem]:
    listed = segments.find(fs)
    if end is not None:
        # Segments begun since `end` was read hold nothing durable yet, as far as it knows; its offset is not theirs.
        listed = [found for found in listed if found.first < end.seq or (found.first, 0) == (end.seq, end.offset)]
    for segment in listed:
        last = segment is listed[-1]
        try:
            for _ in runs(fs, segment, segment.marks[0], end.offset if end and last else None, last=last):
                pass
        except BadRecord as bad:
            if last and is_torn(fs, bad):
                yield Problem(
                    code="torn_tail",
                    message=f"{root}/{segment.path}, line {bad.line}, offset {bad.place.offset}: {bad.reason}; "
                    "a write that was cut short, never acknowledged.",
                    remedy="The next opening cuts it; the bytes stay in log.bak.",
                    file=segment.path,
                    line=bad.line,
                    offset=bad.place.offset,
                    seq=bad.place.seq,
                )
            else:
                yield Problem.of(damaged_at(root, bad))


# --- repair -----------------------------------------------------------------------------------------------------------


#: What a repair removed may have been acknowledged, unlike a torn tail: whoever counts on must leave room.
_MAY_MISS: dict[str, object] = {"acknowledged": True}


@dataclass(slots=True)
class Plan:
    """What a repair would do. Nothing is done until `apply`."""

    fs: FS
    root: str
    options: JournalOptions
    accept_snapshot: bool
    #: Why the journal does not open; None if it does.
    error: StoreError | None = None
    #: The part of the log that stays, oldest first; the last one is cut at `end`.
    kept: list[Segment] = field(default_factory=list)
    end: Mark | None = None
    #: The snapshot to start from, if the log is given up.
    restart: Header | None = None
    #: Segments that go, or are cut, in order.
    removed: list[Segment] = field(default_factory=list)
    #: Records that can still be read in what goes, by type of event, and their numbers.
    types: Counter[str] = field(default_factory=Counter)
    first_lost: int = 0
    last_lost: int = 0
    reason: str = ""

    @property
    def is_needed(self) -> bool:
        """There is something to repair."""
        return self.error is not None

    @property
    def count(self) -> int:
        """How many readable records would be lost."""
        return self.types.total()

    @property
    def lines(self) -> list[str]:
        """The plan in words."""
        if self.error is None:
            return [f"{self.root}: nothing to repair."]
        return [str(self.error.message).removesuffix(UNCHANGED), *self._effects("would be lost")]

    def _effects(self, lost: str) -> list[str]:
        """Say what is kept and what is lost."""
        told = []
        if self.restart is not None:
            told.append(f"The log is given up; the state begins with the snapshot at record {self.restart.seq}.")
        elif self.end is not None:
            told.append(f"Records up to {self.end.seq - 1} are kept.")
        if self.count:
            kinds = ", ".join(f"{kind} ({number})" for kind, number in sorted(self.types.items()))
            told.append(f"{self.count} readable records, {self.first_lost} to {self.last_lost}, {lost}: {kinds}.")
        else:
            told.append(f"No readable record {lost.replace('were', 'was')}.")
        return [*told, "The removed bytes stay in log.bak."] if self.removed else told

    def apply(self, clock: Clock | None = None) -> list[str]:
        """Do it, under the lock; gives what was done, in words."""
        if self.error is None:
            return []
        clock = clock or SystemClock()
        with telling(self.root, "repairing"):
            lock, _ = take_lock(self.fs, self.options, clock, self.root)
            try:
                now = plan(self.fs, self.root, self.options, accept_snapshot=self.accept_snapshot)
                if (now.end, now.restart, now.last_lost) != (self.end, self.restart, self.last_lost):
                    raise JournalDamaged(
                        f"{self.root} changed since the repair was planned. Nothing was changed.",
                        hint=f"Run `holdfast store repair wal:{self.root}` again to see the new plan.",
                    )
                return now._cut(clock)  # noqa: SLF001 - its own class
            finally:
                lock.release()

    def _cut(self, clock: Clock) -> list[str]:
        fs, identity = self.fs, layout.read_identity(self.fs, self.root)
        assert identity is not None, "planned for an existing journal"
        size = sum(size_of(fs, segment.path) for segment in self.removed)
        if self.removed:
            backups.keep_bytes(fs, "log", [(segment.path, 0) for segment in self.removed])
        found = Survey(identity)
        notes: list[dict[str, object]] = []
        if self.restart is not None:
            segment = Segment(self.restart.seq + 1, int(self.restart.sum, 16))
            found.segments, found.end = [segment], segment.marks[0]
            if segments.FOLDER not in fs.listdir(""):
                fs.mkdir(segments.FOLDER)
                fs.sync_dir("")
        else:
            assert self.end is not None, "without a snapshot to restart from, a part of the log is kept"
            found.segments, found.end = self.kept, self.end
        if self.removed:
            first = self.removed[0]
            place = self.end if self.end is not None and first is self.kept[-1] else first.marks[0]
            notes = [repaired(first, place, size - place.offset, self.reason, "log.bak") | _MAY_MISS]
        elif self.restart is not None:
            notes = [repaired(found.segments[0], found.end, 0, self.reason or "the log is gone", "") | _MAY_MISS]
        rewrite(fs, found, notes, clock.now())
        stays = {segment.path for segment in found.segments}
        for segment in reversed(self.removed):
            if segment.path not in stays:
                fs.unlink(segment.path)
        fs.sync_dir(segments.FOLDER)
        remove_drafts(fs)
        return [f"{self.root}: repaired; the next record is {found.end.seq}.", *self._effects("were lost")]


def plan(fs: FS, root: str, options: JournalOptions, *, accept_snapshot: bool = False) -> Plan:
    """Find out what a repair would keep and lose. Raises what cannot be repaired."""
    with telling(root, "checking"):
        made = Plan(fs, root, options, accept_snapshot)
        identity = layout.read_identity(fs, root)
        if identity is None:
            layout.refuse_orphans(fs, root)
            raise NotFound(f"There is no journal at {root}.", hint="Check the path.")
        try:
            survey(fs, identity, options, root)
        except (JournalDamaged, LogMissing) as error:
            made.error = error
        else:
            return made
        _decide(made, made.error, _usable_snapshot(fs, identity), segments.find(fs))
        _count_lost(made)
        return made


def _usable_snapshot(fs: FS, identity: Identity) -> Header | None:
    for seq in snapshots.find(fs):
        try:
            return verify_snapshot(fs, seq, identity)
        except BadSnapshot:
            continue
    return None


def _decide(made: Plan, error: StoreError, base: Header | None, listed: list[Segment]) -> None:
    """Choose between the valid prefix of the log and the snapshot alone."""
    made.reason = str(error.facts.get("reason", error.message))
    covered = base.seq if base else 0
    begin = max((at for at, segment in enumerate(listed) if segment.first <= covered + 1), default=None)
    if begin is not None and not (begin == 0 and error.facts.get("reason") == "it belongs to another journal"):
        _keep_prefix(made, listed, begin, base)
        # Of a log with a snapshot the segment begun with that snapshot must be among them: opening demands it.
        if made.end is not None and made.end.seq > covered and (not covered or made.kept[-1].first > covered):
            return
    if base is None:
        # Of the same class, but with another next step: it is the repair that says so.
        raise type(error)(
            f"{error.message} No part of the log can be kept, and no snapshot can be read.",
            hint="Restore the store from a copy; the directory stays as it is.",
            **error.facts,
        ) from error
    if not made.accept_snapshot:
        raise LogMissing(
            f"{error.message} No valid part of the log reaches the snapshot at record {covered}.",
            hint=f"Run `holdfast store repair --accept-snapshot wal:{made.root}` to go on from the snapshot alone.",
            snapshot=covered,
        ) from error
    made.kept, made.end, made.restart, made.removed = [], None, base, listed


def _keep_prefix(made: Plan, listed: list[Segment], begin: int, base: Header | None) -> None:
    """Walk the log from the snapshot on, and stop where it stops making sense."""
    made.kept = _joined(made.fs, listed[: begin + 1])[:-1]
    end: Mark | None = None
    is_whole = True
    for at, segment in enumerate(listed[begin:], begin):
        if end is not None and (segment.first, segment.chain) != (end.seq, end.chain):
            break
        made.kept.append(segment)
        end, is_whole = _whole_groups(made.fs, segment, base, last=at == len(listed) - 1)
        if end is None or not is_whole:
            break
    made.end = end
    made.removed = [one for one in listed if one not in made.kept or (one is made.kept[-1] and not is_whole)]


def _joined(fs: FS, listed: list[Segment]) -> list[Segment]:
    """Give the end of a list in which each segment joins the next, judging by its last line."""
    joined = listed[-1:]
    for segment in reversed(listed[:-1]):
        if last_place(fs, segment) != (joined[0].first, joined[0].chain):
            break
        joined.insert(0, segment)
    return joined


def _whole_groups(fs: FS, segment: Segment, base: Header | None, *, last: bool) -> tuple[Mark | None, bool]:
    """Give the place after the last whole group, and whether the file ends there. None: it misses the snapshot."""
    whole = read = segment.marks[0]
    try:
        for run in runs(fs, segment, whole, last=last):
            meets = base is not None and run.start.seq <= base.seq + 1 <= run.end.seq
            if base and meets and run.mark(base.seq + 1 - run.start.seq).chain != int(base.sum, 16):
                return None, False
            ends = next((n for n in range(len(run.lines), 0, -1) if not has_more(run.lines[n - 1])), 0)
            whole, read = (run.mark(ends) if ends else whole), run.end
    except BadRecord:
        return whole, False
    return whole, whole == read


class _Readable(msgspec.Struct):
    seq: int
    event: dict[str, msgspec.Raw]


_readable = msgspec.json.Decoder(_Readable)


def _count_lost(made: Plan) -> None:
    """Count what can still be read in the bytes that go: whole lines, whatever their sums say."""
    kept = made.end.seq if made.end is not None else 0
    covered = made.restart.seq if made.restart is not None else made.kept[0].first - 1
    for segment in made.removed:
        for line in _lines(made.fs, segment):
            try:
                found = _readable.decode(line)
                kind = msgspec.json.decode(found.event["type"], type=str)
            except (ValueError, KeyError, RecursionError):
                continue
            if found.seq < kept or found.seq <= covered:
                continue
            made.first_lost = min(made.first_lost or found.seq, found.seq)
            made.last_lost = max(made.last_lost, found.seq)
            made.types[kind] += 1


def _lines(fs: FS, segment: Segment) -> Iterator[bytes]:
    """Yield whatever stands between newlines, in bounded memory; what is too long to be a record is left out."""
    with reading(fs, segment.path) as handle:
        at, rest = 0, b""
        while chunk := fs.read(handle, CHUNK, at):
            at += len(chunk)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            yield from lines
            if len(rest) > MAX_LINE:
                rest = b"\0"
        if rest:
            yield rest
