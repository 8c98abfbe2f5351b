"""Repairing a `dir:` store: what refuses to open is set aside, what was mended by hand goes back. Nothing is deleted.

Told first, done when asked for, with the store's lock held. A damaged intent was never acknowledged by the feed: set
aside, at most its half-written files remain, which opening settles. A file of the feed that is not whole is kept as
`.bak`, and the feed begins after it. A file of a record that a check finds fault with is set aside, and written again
where the feed knows it. A file in quarantine that was edited since, and can be read now, returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from holdfast.clock import Clock, SystemClock
from holdfast.errors import StoreDamaged
from holdfast.journal import JournalOptions
from holdfast.journal.filesystem import FS, OsFS
from holdfast.journal.fs_errors import telling
from holdfast.journal.opening import take_lock
from holdfast.model.times import FIRST
from holdfast.stores.dir import feed, intent, store_files
from holdfast.stores.dir.foreign_files import history, stranger
from holdfast.stores.dir.format import record_files
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import encoded, id_in, stem_of
from holdfast.stores.dir.format.record_files import FEED, INSTANCES, INTENT, PENDING, PLACES, QUARANTINE, STATES
from holdfast.stores.dir.format.record_text import Unreadable, whole
from holdfast.stores.dir.format.subdirectory_fs import Below
from holdfast.stores.dir.format.workflow_files import instance_in
from holdfast.stores.dir.integrity.quarantine import REASON, Quarantine, SetAside
from holdfast.stores.dir.integrity.restore_files import file_plans
from holdfast.stores.dir.load.recovery import numbers
from holdfast.stores.dir.reader import Irregular, text_at
from holdfast.stores.dir.store import DirStore
from holdfast.stores.dir.store_files import Counters
from holdfast.stores.wal import ROOM


@dataclass
class DirPlan:
    """What a repair would do."""

    _fs: FS
    _root: str
    _clock: Clock
    #: For people: what there is, and what would be done about it.
    lines: list[str] = field(default_factory=list)
    #: Each with the line that plans it and the line that tells it was done.
    _steps: list[tuple[str, str, Callable[[], None]]] = field(default_factory=list)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self._steps)

    def apply(self) -> list[str]:
        """Do it; give the lines that tell what was done."""
        with telling(self._root, "repairing"):
            lock, _ = take_lock(self._fs, JournalOptions(), self._clock, self._root)
            try:
                for _, _, step in self._steps:
                    step()
            finally:
                lock.release()
        planned = {plan for plan, _, _ in self._steps}
        return [told for _, told, _ in self._steps] + [line for line in self.lines if line not in planned]

    def add(self, plan: str, told: str, step: Callable[[], None]) -> None:
        """Add one step."""
        self.lines.append(plan)
        self._steps.append((plan, told, step))


def plan(path: str, *, fs: FS | None = None, clock: Clock | None = None) -> DirPlan:
    """Find out what a repair would do."""
    clock = clock or SystemClock()
    with telling(path, "looking what is damaged"):
        fs = fs or OsFS(path)
        made, data = DirPlan(fs, path, clock), Below(fs, "data")
        quarantine = Quarantine(data, path, clock)
        # What another program made and nobody has opened yet has neither.
        applied = _plan_feed(made, data) if data.stat(FEED) is not None else 0
        if data.stat(INTENT) is not None:
            _plan_intents(made, data, path, quarantine, applied)
        try:
            _plan_files(made, fs, data, path, quarantine)
        except StoreDamaged as damage:
            if not made.is_needed:  # else that comes first, and the files after it
                raise type(damage)(
                    f"{damage.message} No step of a repair mends this.",
                    hint="Restore the store from a copy; the directory stays as it is.",
                    **damage.facts,
                ) from damage
        for aside in quarantine.all():
            _plan_return(made, data, aside)
    if not made.lines:
        made.lines.append("nothing is damaged, and nothing was set aside")
    return made


def _plan_files(made: DirPlan, fs: FS, data: FS, root: str, quarantine: Quarantine) -> None:
    """Plan what to do about files of records, as a check finds them."""
    store = DirStore.open(root, fs=fs, readonly=True)
    try:
        for one in file_plans(data, store, quarantine):
            if one.step is None:
                made.lines.append(one.plan)
            else:
                made.add(one.plan, one.told, one.step)
    finally:
        store.close()


def _plan_intents(made: DirPlan, data: FS, root: str, quarantine: Quarantine, applied: int) -> None:
    for name in data.listdir(INTENT):
        stem = stem_of(name)
        if stem is None or not intent.is_intent(stem):
            continue
        try:
            found = intent.read(root, stem, whole(data, path_of(INTENT, stem)))
            if found.last <= applied or found.first <= applied + 1:
                continue
            reason = f"it begins with event {found.first}, the feed ends with {applied}"
        except StoreDamaged as damage:
            reason = str(damage.facts.get("reason"))
        made.add(
            f"data/{INTENT}/{name}: {reason}. It would be set aside; what it would have committed was never answered.",
            f"data/{INTENT}/{name}: set aside in data/{QUARANTINE}",
            partial(quarantine.take, INTENT, stem, reason),
        )


def _plan_feed(made: DirPlan, data: FS) -> int:
    """Plan to cut what is not whole; give the number of the last event that stays."""
    firsts = feed.files(data)
    last = 0
    for at, first in enumerate(firsts):
        end = feed.end_of(data, first)
        following = firsts[at + 1] if at + 1 < len(firsts) else None
        last = end.seq
        if not end.is_torn and (following is None or end.seq == following - 1):
            continue
        path, begins = feed.path_of(first), "anew" if following is None else f"with event {following}"
        made.add(
            f"data/{path}: event {end.seq + 1} is not whole. The feed would begin {begins}; this file and older ones "
            "stay as .bak. No job is changed.",
            f"data/{path}: taken out of the feed with those before it, kept as .bak",
            partial(_take_out, data, firsts[: at + 1], end if following is None else None),
        )
    return last


def _take_out(data: FS, firsts: list[int], end: feed.End | None) -> None:
    """Take files out of the feed; with the newest, count on past every number and token that was in it."""
    if end is not None:
        kept = store_files.read_counters(data) or Counters()
        seq = max([kept.seq, end.seq, *numbers(data)])
        store_files.write_counters(data, Counters(seq, max(kept.ts, end.ts), max(kept.token, end.token) + ROOM))
    for first in firsts:
        if data.stat(feed.path_of(first)) is not None:
            data.rename(feed.path_of(first), f"{feed.path_of(first)}.bak")
    data.sync_dir(FEED)


def _plan_return(made: DirPlan, data: FS, aside: SetAside) -> None:
    """Plan to bring back a file that was edited since it was set aside."""
    place = f"data/{aside.place}"
    if aside.is_folder:
        _plan_instance(made, data, aside)
        return
    moved, said = data.stat(aside.place), data.stat(f"{QUARANTINE}/{aside.name}{REASON}")
    if moved is None or (said is not None and moved.mtime_ns <= said.mtime_ns):
        made.lines.append(f"{place}: {aside.reason.rstrip('.')}. It stays until it is edited.")
        return
    try:
        folder, name = _home(data, aside)
    except (Unreadable, Irregular) as problem:
        made.lines.append(f"{place}: was edited, but still: {problem}. It stays.")
        return
    made.add(
        f"{place}: was edited, and can be read now. It would return to data/{folder}.",
        f"{place}: returned to data/{path_of(folder, name)}",
        partial(_return, data, aside, folder, name),
    )


def _plan_instance(made: DirPlan, data: FS, aside: SetAside) -> None:
    """Plan to bring back an instance that can be read now, unless another one has its id by now."""
    place = f"data/{aside.place}"
    name = aside.name.split("-", 2)[2]
    try:
        home = instance_in(data, aside.place)
    except (Unreadable, Irregular) as problem:
        made.lines.append(f"{place}: instance {name}: {problem}. It stays.")
        return
    if data.stat(home) is not None:
        made.lines.append(f"{place}: there is another instance of its id by now. It stays.")
        return
    made.add(
        f"{place}: can be read now. It would return to data/{home}.",
        f"{place}: returned to data/{home}",
        partial(_return_folder, data, aside.place, home),
    )


def _return_folder(data: FS, place: str, home: str) -> None:
    data.rename(place, home)
    data.sync_dir(INSTANCES)
    data.sync_dir(QUARANTINE)


def _home(data: FS, aside: SetAside) -> tuple[str, str]:
    """Give where a file belongs now. Raises Unreadable if it belongs nowhere."""
    text = text_at(data, QUARANTINE, aside.name)
    folder, name = aside.folder, id_in(aside.name.split("-", 2)[2]) or aside.name
    state = next((state for state in STATES if folder == state or folder.startswith(f"{state}/")), None)
    if state is not None:
        if state in record_files.ENDED:
            history(text, name, state, FIRST)
        else:
            stranger(text, name, FIRST, "new")
            folder = PENDING  # from where it is taken as what it is: somebody's wish
    else:
        kind = next((kind for kind, places in PLACES.items() if folder in places), None)
        if kind is None:
            raise Unreadable("it came from no directory of records")
        record_files.read(kind, folder, name, text)
    taken = data.stat(path_of(folder, name))
    return folder, name if taken is None else encoded(aside.name)


def _return(data: FS, aside: SetAside, folder: str, name: str) -> None:
    data.rename(path_of(QUARANTINE, aside.name), path_of(folder, name))
    data.sync_dir(folder)
    data.sync_dir(QUARANTINE)
