"""The files of one workflow instance: where each lies, and what it says. Reads and writes texts, decides nothing.

    instances/<id>/meta.json                       the instance
    instances/<id>/lock.json                       who works on it, with which messages; or why it was given back
    instances/<id>/kv.json                         its keys, with what the running execution has made of them
    instances/<id>/executions/<n>/state.json       an execution, and how many bytes of its history count
    instances/<id>/executions/<n>/history.jsonl    see `histories`

Nobody but the store writes here: what was changed by hand is taken for damage where it can be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.journal.filesystem import FS
from holdfast.model.records import Record
from holdfast.model.workflows.instances import Execution, Instance, KeyValue, Turn
from holdfast.stores.dir.format import camel_case, record_files
from holdfast.stores.dir.format.file_names import ENDING, name_of
from holdfast.stores.dir.format.histories import Kept
from holdfast.stores.dir.format.record_files import INSTANCES, number_in
from holdfast.stores.dir.format.record_text import Unreadable
from holdfast.stores.dir.reader import text_at

META, LOCK, KEYS, STATE, EXECUTIONS = "meta", "lock", "kv", "state", "executions"


def folder_of(instance_id: str) -> str:
    """Give the directory of an instance."""
    return f"{INSTANCES}/{name_of(instance_id)}"


def instance_folders(fs: FS) -> Iterator[str]:
    """Walk the directories of all instances, and those of their executions."""
    for name in fs.listdir(INSTANCES) if fs.stat(INSTANCES) is not None else ():
        folder = f"{INSTANCES}/{name}"
        if is_folder(fs, folder):
            yield folder
            yield from (f"{folder}/{EXECUTIONS}/{number}" for number in execution_numbers(fs, folder))


def execution_numbers(fs: FS, folder: str) -> list[str]:
    """Give the names of the directories of an instance's executions."""
    place = f"{folder}/{EXECUTIONS}"
    names = fs.listdir(place) if is_folder(fs, place) else []
    return [name for name in names if name.isdecimal() and name.isascii() and is_folder(fs, f"{place}/{name}")]


def is_folder(fs: FS, path: str) -> bool:
    """Tell whether a directory is there; a link to one is none."""
    found = fs.stat(path)
    return found is not None and found.kind == "dir"


def execution_folder(execution: Execution) -> str:
    """Give the directory of an execution."""
    return f"{folder_of(execution.instance_id)}/{EXECUTIONS}/{execution.execution_id}"


class _Tail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the file of an execution says of its history's file."""

    file_bytes: int = 0
    ordered: bool = True


_tail = camel_case.plan_of(_Tail)
_NULL = msgspec.Raw(camel_case.NULL)
#: Above every number there can be.
_ANY = 1 << 62


def written_state(execution: Execution, kept: Kept, seq: int) -> bytes:
    """Give the text of an execution's file, without blanks."""
    tail = _tail.write(_Tail(kept.size, kept.ordered))
    return camel_case.encode({**record_files.fields_of(execution), **tail, "seq": seq})


def written_keys(instance_id: str, keys: Sequence[KeyValue], seq: int) -> bytes:
    """Give the text of the file of an instance's keys, without blanks."""
    found = {one.key: _without(record_files.fields_of(one), "instanceId", "key") for one in keys}
    return camel_case.encode({"instanceId": instance_id, "keys": found, "seq": seq})


def _without(fields: camel_case.Fields, *names: str) -> camel_case.Fields:
    return {name: value for name, value in fields.items() if name not in names}


class InstanceFiles:
    """The files of one instance, to be read. All raise Unreadable, Irregular, and OSError for a failing disk."""

    def __init__(self, fs: FS, folder: str, name: str, applied: int, *, at_work: bool = False) -> None:
        """Look into a directory in which the instance of that name lies, as written up to an event.

        With `at_work` another process writes: an execution whose own file is not there yet is passed over.
        """
        self._fs = fs
        self._folder = folder
        self._name = name
        #: What lies in the directory, and the executions there are directories of.
        self.names = fs.listdir(folder)
        self.numbers = execution_numbers(fs, folder) if EXECUTIONS in self.names else []
        self._applied = applied
        self._at_work = at_work

    def instance(self) -> Instance | None:
        """Read who it is; None if no file says it."""
        fields = self._fields(META) if f"{META}{ENDING}" in self.names else None
        return None if fields is None else self._owned(Instance, META, fields)

    def turn(self) -> Turn | None:
        """Read who works on it; None if no file says it."""
        fields = self._fields(LOCK) if f"{LOCK}{ENDING}" in self.names else None
        return None if fields is None else self._owned(Turn, LOCK, fields)

    def keys(self) -> Sequence[KeyValue]:
        """Read its keys."""
        fields = self._fields(KEYS) if f"{KEYS}{ENDING}" in self.names else None
        if fields is None:
            return ()
        of = {"instanceId": fields.get("instanceId", _NULL)}
        values = camel_case.fields_of(fields.get("keys", _NULL)).items()
        named = (
            {**camel_case.fields_of(value), **of, "key": msgspec.Raw(camel_case.encode(key))} for key, value in values
        )
        return [self._owned(KeyValue, KEYS, one) for one in named]

    def executions(self) -> Sequence[tuple[Execution, Kept]]:
        """Read its executions, with where their histories lie."""
        found = map(self._execution, self.numbers)
        return [one for one in found if one is not None]

    def _execution(self, number: str) -> tuple[Execution, Kept] | None:
        state = f"{EXECUTIONS}/{number}/{STATE}"
        fields = self._fields(state)
        if fields is None:
            if self._at_work:
                return None
            raise Unreadable(f"{state}.json: is not there")
        execution: Execution = self._owned(Execution, state, fields)
        tail: _Tail = _tail.read(fields)
        if str(execution.execution_id) != number or tail.file_bytes < 0:
            raise Unreadable(f"{state}.json: does not fit its place")
        return execution, Kept(f"{self._folder}/{EXECUTIONS}/{number}", tail.file_bytes, tail.ordered)

    def _fields(self, name: str) -> camel_case.Fields | None:
        try:
            fields = camel_case.fields_of(text_at(self._fs, self._folder, name, untouched=True))
            number = number_in(fields)
        except FileNotFoundError:
            return None
        except Unreadable as problem:
            raise Unreadable(f"{name}.json: {problem}") from None
        if number is None or number > self._applied:
            raise Unreadable(f"{name}.json: it was not written by this store")
        return fields

    def _owned(self, kind: type[Record], file: str, fields: camel_case.Fields) -> Any:
        """Give the record that the fields describe; it must be of the instance that lies here."""
        try:
            record = record_files.record_in(kind, fields)
        except Unreadable as problem:
            raise Unreadable(f"{file}.json: {problem}") from None
        if name_of(record.instance_id) != self._name:
            raise Unreadable(f"{file}.json: what is inside belongs to instance {record.instance_id!r:.80}")
        return record


def instance_in(fs: FS, folder: str) -> str:
    """Read all that lies in a directory outside; give where it belongs. Raises Unreadable, Irregular, OSError."""
    try:
        name = name_of(
            camel_case.text_in(camel_case.fields_of(text_at(fs, folder, META, untouched=True)), "instanceId") or ""
        )
    except FileNotFoundError:
        raise Unreadable(f"{META}.json: is not there") from None
    files = InstanceFiles(fs, folder, name, _ANY)
    files.instance(), files.turn(), files.keys(), files.executions()
    return f"{INSTANCES}/{name}"
