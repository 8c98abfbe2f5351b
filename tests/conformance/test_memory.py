"""The conformance suite on `memory:`, the model for all other stores."""

from pathlib import Path

from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.conformance import Conformance


class TestMemory(Conformance):
    def open(self, path: Path) -> MemoryStore:
        return MemoryStore(clock=self.clock)

    def plant(self, store, kind, key, record) -> None:
        store._tables.put(kind, key, record)
