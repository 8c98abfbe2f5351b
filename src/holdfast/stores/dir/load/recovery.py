"""After a crash: what the feed says is applied, and the one intent that may be open. The order of these calls matters.

What is applied is known from one number: the larger of that in `meta.json` and that of the last whole line of the
newest file of the feed. An intent that ends at or below it is done, whatever has become of its files since, and is
removed. A later one was not marked, and nothing newer was begun: it is applied whole, then the feed lines it still
lacks are appended. Everything that a process which died may have left in the cache only is synced before anything
rests on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from holdfast.errors import StoreDamaged
from holdfast.journal.filesystem import FS, parent
from holdfast.model.times import Timestamp
from holdfast.stores.dir import feed, intent, store_files
from holdfast.stores.dir.feed import Feed
from holdfast.stores.dir.format import atomic_write, record_files
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.camel_case import fields_of
from holdfast.stores.dir.format.file_names import is_canonical, stem_of
from holdfast.stores.dir.format.record_files import FEED, INTENT, STATES
from holdfast.stores.dir.format.record_text import Unreadable, whole
from holdfast.stores.dir.format.workflow_files import STATE, instance_folders
from holdfast.stores.dir.intent import Append, Effect, Image, Intent
from holdfast.stores.dir.reader import Irregular, shares_in, text_at
from holdfast.stores.dir.store_files import Counters

log = logging.getLogger("holdfast.stores.dir")


@dataclass
class Report:
    """What opening found and did, counted."""

    #: Drafts removed, torn lines cut (1 or 0), intents that were done and that were applied now.
    drafts: int = 0
    torn: int = 0
    done: int = 0
    applied: int = 0
    #: Second copies of a job removed, files rewritten or returned to where they belong, and set aside.
    copies: int = 0
    rewritten: int = 0
    quarantined: int = 0
    #: What is no regular file, left alone.
    irregular: int = 0


class Recovery:
    """Finds the end of the feed and, unless it only reads, finishes what a crash left undone."""

    def __init__(self, data: FS, root: str, report: Report, *, readonly: bool, fresh: bool) -> None:
        """Look at a store; in a `fresh` one the numbers of records mean nothing, since others wrote them."""
        self._fs = data
        self._root = root
        self.report = report
        self._readonly = readonly
        self._fresh = fresh
        #: What `meta.json` says; None if it is lost.
        self.counters = store_files.read_counters(data)
        firsts = feed.files(data) if data.stat(FEED) is not None else []
        self._end = feed.end_of(data, firsts[-1]) if firsts else None
        self.feed = Feed(data, root, firsts, self._end)
        marks = [data.stat(path_of("", store_files.META)), data.stat(feed.path_of(firsts[-1])) if firsts else None]
        #: Time of the last commit, or of the last closing: nanoseconds.
        self.settled_at = max((mark.mtime_ns for mark in marks if mark is not None), default=0)

    @property
    def is_torn(self) -> bool:
        """Whether something follows the last whole line, and no commit is under way that explains it."""
        return self._end is not None and self._end.is_torn and not self._intents()

    def unfinished(self) -> Intent | None:
        """Give the one commit that was made and is not finished; None if there is none, or it takes repair to tell."""
        if self.counters is None or self._end is None:
            return None
        applied = max(self.counters.seq, self._end.seq)
        open_ones = [one for one in self._intents() if one.last > applied]
        return open_ones[0] if len(open_ones) == 1 and open_ones[0].first <= applied + 1 else None

    def run(self) -> Counters:
        """Do it; give how far the store has counted."""
        counters, end = self.counters or Counters(), self._end
        intents = self._intents()
        applied = max(counters.seq, end.seq if end else 0)
        lost = not self._fresh and (self.counters is None or end is None)
        if lost:
            # The highest number of any record is that of the newest intent begun.
            applied = max(applied, max(numbers(self._fs), default=0))
        token = max(counters.token, end.token if end else 0)
        found = Counters(applied, max(counters.ts, end.ts if end else Timestamp("")), token)
        return found if self._readonly else self._recover(intents, found, lost=lost)

    def _intents(self) -> list[Intent]:
        """Read the intents, oldest first. Raises StoreDamaged."""
        if self._fs.stat(INTENT) is None:
            return []
        stems = [stem for name in self._fs.listdir(INTENT) if (stem := stem_of(name)) and intent.is_intent(stem)]
        found: list[Intent] = []
        for stem in stems:
            with suppress(FileNotFoundError):  # its store, at work while we only read, has dropped it
                text = whole(self._fs, path_of(INTENT, stem))
                found.append(intent.read(self._root, stem, text))
        return found

    def _recover(self, intents: list[Intent], found: Counters, *, lost: bool) -> Counters:
        """Bring files and feed to the state after the last intent."""
        applied, ts, token, following, end = found.seq, found.ts, found.token, self.feed, self._end
        # Of a store that lost its feed the newest intent may be half applied; those before it are done.
        open_ones = [one for one in intents if one.last > applied or (lost and one.last == applied)]
        if len(open_ones) > 1 or (open_ones and not lost and open_ones[0].first > applied + 1):
            raise StoreDamaged(
                f"{self._root}/data/{INTENT}/{open_ones[-1].name}.json follows event {applied}, with a gap before "
                "it. Nothing was changed.",
                hint=f"Run `holdfast store repair dir:{self._root}`, or restore the store from a copy.",
                file=f"{self._root}/data/{INTENT}/{open_ones[-1].name}.json",
                reason="a gap in the numbers",
            )
        if lost and open_ones:
            # The events just before it left no record that tells their number.
            applied = max(applied, open_ones[0].first - 1)
        if end is not None and end.is_torn:
            self._cut(following, end, open_ones)
        # What a process that died wrote may be in the cache only: nothing may rest on it before it is durable.
        self._fs.sync_dir(INTENT)
        if end is not None:
            self._sync(feed.path_of(following.firsts[-1]))
        if not following.firsts or following.seq < applied:
            self._renew_feed(following, Counters(applied, ts, token))
        for one in open_ones:
            self._apply(one)
            lacking = [told for told in one.body.events if told.seq > following.seq]
            if lacking:
                following.append(lacking)
            applied, ts = one.last, max(ts, one.body.events[-1].ts)
            token = max([token, *(feed.token_of(told.event) for told in one.body.events)])
            self.report.applied += 1
        self.report.done += len(intents) - len(open_ones)
        for one in intents:
            self._fs.unlink(path_of(INTENT, one.name))
        if intents:
            self._fs.sync_dir(INTENT)
        return Counters(applied, ts, token)

    def _cut(self, following: Feed, end: feed.End, open_ones: list[Intent]) -> None:
        """Cut what follows the last whole line, keeping its bytes beside; it must be in the open intent."""
        first = following.firsts[-1]
        if not any(one.first <= end.seq + 1 <= one.last for one in open_ones):
            raise following.damaged(first, end.seq + 1)
        path = feed.path_of(first)
        text = whole(self._fs, path)
        atomic_write.put(self._fs, FEED, f"{first:016}-{end.seq + 1:016}.torn", text[end.good :])
        handle = self._fs.open(path, "append")
        try:
            self._fs.truncate(handle, end.good)
            self._fs.sync(handle, metadata=True)
        finally:
            self._fs.close(handle)
        self.report.torn += 1
        log.warning("feed.cut", extra={"file": f"{self._root}/data/{path}", "bytes": end.size - end.good})

    def _renew_feed(self, following: Feed, counters: Counters) -> None:
        """Begin a file of the feed that goes on after the counters."""
        store_files.write_counters(self._fs, counters)
        if counters.seq + 1 in following.firsts:  # begun, and nothing was written
            following.firsts.remove(counters.seq + 1)
            self._fs.unlink(feed.path_of(counters.seq + 1))
        following.begin(counters.seq + 1)
        following.close()  # the first append opens it again: an opening that fails from here on has nothing to close

    def _apply(self, one: Intent) -> None:
        """Do what an intent says, where that is not done; make durable what is."""
        todo: list[Effect] = []
        for effect in one.body.effects:
            if isinstance(effect, Image) and has_number(self._fs, effect.folder, effect.name, effect.seq):
                self._sync(path_of(effect.folder, effect.name))
                self._fs.sync_dir(effect.folder)
            elif not isinstance(effect, Append) or not has_number(self._fs, effect.folder, STATE, effect.seq):
                # An append that the execution's own file counts was durable before that file was put.
                todo.append(effect)
        atomic_write.apply(self._fs, todo, lambda _image, _seen: None)
        # Images that were there already may share a directory with what has just gone: their names were synced above.
        # A directory that a process which died has made may have its name in the cache only.
        made = (effect.folder for effect in one.body.effects if isinstance(effect, Image | Append))
        for above in dict.fromkeys(above for folder in made for above in _above(folder)):
            self._fs.sync_dir(above)

    def _sync(self, path: str) -> None:
        handle = self._fs.open(path, "append")
        try:
            self._fs.sync(handle, metadata=True)
        finally:
            self._fs.close(handle)


def has_number(fs: FS, folder: str, name: str, number: int) -> bool:
    """Tell whether a file is there, in the state of that number or a later one."""
    try:
        seq = record_files.number_in(fields_of(text_at(fs, folder, name, untouched=True)))
    except (FileNotFoundError, Unreadable, Irregular):
        return False
    return seq is not None and seq >= number


def _above(folder: str) -> Iterator[str]:
    """Walk the directories above one, up to the first."""
    while folder:
        folder = parent(folder)
        yield folder


def numbers(fs: FS) -> Iterator[int]:
    """Walk the numbers of all records. Reads every file: only where nothing else tells how far the store was."""
    folders = (folder for places in record_files.PLACES.values() for folder in places)
    for folder in (*_shares(fs), *folders, *instance_folders(fs)):
        for name in fs.listdir(folder) if fs.stat(folder) is not None else ():
            stem = stem_of(name)
            if stem is None or not is_canonical(stem.replace(",", "")):
                continue
            with suppress(Unreadable, Irregular, FileNotFoundError):
                seq = record_files.number_in(fields_of(text_at(fs, folder, stem)))
                if seq is not None:
                    yield seq


def _shares(fs: FS) -> Iterator[str]:
    for state in STATES:
        yield state
        if fs.stat(state) is not None:
            yield from shares_in(fs, state, fs.listdir(state))
