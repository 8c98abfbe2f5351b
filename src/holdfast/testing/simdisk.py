"""The disk under `SimFS`: files and directories that know what a power cut would leave of them.

It knows no call and no fault. Bytes become durable by `File.sync`, names by `Dir.sync`. When syncing a file fails, its
bytes are washed clean instead: they are seen until the power goes, and then they are gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from random import Random
from typing import Literal

BLOCK = 512  # bytes; the piece of a file that reaches the disk whole or not at all

#: What becomes of bytes not synced: none arrive, all arrive, each block arrives or leaves NULs, or leaves junk.
Loss = Literal["lose", "keep", "blocks", "junk"]
#: What becomes of names not synced: each creation, rename and removal is lost, kept, or one of both by the seed.
Names = Literal["lose", "keep", "mixed"]


class File:
    """Bytes, twice: as seen, and as on the disk."""

    __slots__ = ("changes", "data", "dirty", "durable", "floor", "ghost", "inode")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.data = bytearray()
        self.durable = bytearray()
        #: Ranges written and not yet synced.
        self.dirty: list[tuple[int, int]] = []
        #: The shortest the file has been since its last sync: what lay beyond is not the disk's to keep.
        self.floor = 0
        #: What it was before unsynced bytes were cut off again: the disk may have taken these and not the cut.
        self.ghost: bytearray | None = None
        self.changes = 0

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes at the end; they are dirty."""
        start = len(self.data)
        self.data += data
        self.changes += 1
        if self.dirty and self.dirty[-1][1] == start:
            start = self.dirty.pop()[0]
        self.dirty.append((start, len(self.data)))

    def truncate(self, size: int) -> int:
        """Cut, or lengthen with NULs; give the bytes freed."""
        freed = len(self.data) - size
        self.changes += 1
        if freed < 0:
            self.append(bytes(-freed))
            return freed
        if any(end > size for _, end in self.dirty):
            self.ghost = self.arrived()
        del self.data[size:]
        self.floor = min(self.floor, size)
        self.dirty = [(start, min(end, size)) for start, end in self.dirty if start < size]
        return freed

    def arrived(self) -> bytearray:
        """Give the disk's bytes if all that is dirty arrived. What a failed sync washed clean is NULs."""
        disk = self.durable[: self.floor]
        disk += bytes(len(self.data) - len(disk))
        for start, end in self.dirty:
            disk[start:end] = self.data[start:end]
        return disk

    def sync(self) -> None:
        """Make the dirty bytes and the length durable."""
        # The common case costs what was written: an append to what is already there.
        if len(self.dirty) == 1 and self.dirty[0][0] == len(self.durable) == self.floor:
            self.durable += self.data[self.floor :]
        else:
            self.durable = self.arrived()
        self.dirty = []
        self.ghost = None
        self.floor = len(self.durable)

    def wash(self) -> None:
        """Forget what is dirty without keeping it, as systems do when a sync fails."""
        self.dirty = []


class Change:
    """One change of a directory not yet synced: a name set, a name dropped, or both for a rename."""

    __slots__ = ("dropped", "name", "needs", "node", "synced")

    def __init__(
        self, name: str = "", node: Dir | File | None = None, *, dropped: str = "", needs: Change | None = None
    ) -> None:
        self.name = name
        self.node = node
        self.dropped = dropped
        #: Leaving one directory survives a cut only if the arrival in the other did.
        self.needs = needs
        self.synced = False

    def apply(self, names: dict[str, Dir | File]) -> None:
        """Do it to a table of names."""
        if self.dropped:
            names.pop(self.dropped, None)
        if self.node is not None:
            names[self.name] = self.node


class Dir:
    """Names, twice: as seen, and as on the disk with the changes on their way."""

    __slots__ = ("durable", "inode", "names", "pending")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.names: dict[str, Dir | File] = {}
        self.durable: dict[str, Dir | File] = {}
        self.pending: list[Change] = []

    def put(self, name: str, node: Dir | File) -> None:
        """Give a new file or directory its name."""
        self.do(Change(name, node))

    def do(self, change: Change) -> None:
        """Change what is seen; the disk learns it by `sync`."""
        change.apply(self.names)
        self.pending.append(change)

    def sync(self) -> None:
        """Make the changes durable, in their order."""
        for change in self.pending:
            change.apply(self.durable)
            change.synced = True
        self.pending = []


class Copier:
    """Copies a tree with both its truths; a node with two names stays one node."""

    def __init__(self) -> None:
        self._nodes: dict[int, Dir | File] = {}
        self._changes: dict[int, Change] = {}

    def copy(self, root: Dir) -> Dir:
        """Copy the tree."""
        made = self._node(root)
        assert isinstance(made, Dir)
        return made

    def _node(self, node: Dir | File) -> Dir | File:
        known = self._nodes.get(id(node))
        if known is not None:
            return known
        if isinstance(node, File):
            file = self._nodes[id(node)] = File(node.inode)
            file.data, file.durable, file.dirty = node.data[:], node.durable[:], node.dirty[:]
            file.floor, file.ghost, file.changes = node.floor, node.ghost, node.changes
            return file
        made = self._nodes[id(node)] = Dir(node.inode)
        made.names = {name: self._node(child) for name, child in node.names.items()}
        made.durable = {name: self._node(child) for name, child in node.durable.items()}
        made.pending = [self._change(change) for change in node.pending]
        return made

    def _change(self, change: Change) -> Change:
        known = self._changes.get(id(change))
        if known is None:
            node = None if change.node is None else self._node(change.node)
            needs = None if change.needs is None else self._change(change.needs)
            known = self._changes[id(change)] = Change(change.name, node, dropped=change.dropped, needs=needs)
            known.synced = change.synced
        return known


class PowerCut:
    """Builds what the disk holds after a cut. The same seed and the same tree give the same disk."""

    def __init__(self, mode: Loss, seed: int, names: Names) -> None:
        self._mode = mode
        self._names = names
        self._dice = Random(seed)  # noqa: S311 - repeatable on purpose, no secret
        self._nodes: dict[int, Dir | File] = {}
        self._kept: dict[int, bool] = {}

    def cut(self, root: Dir) -> Dir:
        """Build the tree a reader finds after the cut; all of it is durable."""
        made = self._node(root)
        assert isinstance(made, Dir)
        return made

    def _node(self, node: Dir | File) -> Dir | File:
        known = self._nodes.get(id(node))
        if known is not None:
            return known
        if isinstance(node, File):
            file = self._nodes[id(node)] = File(node.inode)
            file.durable = self._bytes(node)
            file.data, file.floor = file.durable[:], len(file.durable)
            return file
        made = self._nodes[id(node)] = Dir(node.inode)
        names = dict(node.durable)
        for change in node.pending:
            if self._survives(change):
                change.apply(names)
        made.names = {name: self._node(child) for name, child in names.items()}
        made.durable = dict(made.names)
        return made

    def _survives(self, change: Change) -> bool:
        known = self._kept.get(id(change))
        if known is None:
            known = self._names == "keep" or (self._names == "mixed" and self._dice.random() < 0.5)
            if known and change.needs is not None:
                known = change.needs.synced or self._survives(change.needs)
            self._kept[id(change)] = known
        return known

    def _bytes(self, file: File) -> bytearray:
        if self._mode == "lose":
            return file.durable[:]
        old, dice, new = file.durable, self._dice, file.arrived()
        if self._mode == "keep":
            return new
        if file.ghost is not None and dice.random() < 0.5:
            new = file.ghost
        if new == old:
            return new[:]
        # The length is written apart from the bytes: it may be the old one, the new one, or any between.
        low, high = sorted((min(len(old), file.floor), len(new)))
        size = dice.choice((len(old), len(new), dice.randint(low, high)))
        disk = bytearray()
        for start in range(0, size, BLOCK):
            end = min(start + BLOCK, size)
            was, now = old[start:end], new[start:end]
            if was == now or dice.random() < 0.5:
                piece = now
            elif self._mode == "junk":
                piece = was + dice.randbytes(end - start - len(was))
            else:
                piece = was
            disk += piece + bytes(end - start - len(piece))
        return disk


def walk(folder: Dir, prefix: str) -> Iterable[tuple[str, bytes]]:
    """Give every file below a directory with its bytes, as seen."""
    for name, node in sorted(folder.names.items()):
        if isinstance(node, Dir):
            yield from walk(node, f"{prefix}{name}/")
        else:
            yield prefix + name, bytes(node.data)


def disk_of(node: Dir | File) -> Hashable:
    """Give all that is found below, and all that is at risk there: two disks that are equal in it have one future.

    How often a file was changed is left out: that is only ever compared with what it was before.
    """
    if isinstance(node, File):
        ghost = None if node.ghost is None else bytes(node.ghost)
        return bytes(node.data), bytes(node.durable), tuple(node.dirty), node.floor, ghost, node.inode
    if node.pending:
        return object()  # names on their way: equal to nothing
    return tuple((name, disk_of(node.names[name])) for name in sorted(node.names))
