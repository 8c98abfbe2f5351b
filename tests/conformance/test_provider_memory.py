"""The provider's suite on `memory:`, the model for all other stores."""

from pathlib import Path

from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.conformance.provider import ProviderConformance


class TestProviderOnMemory(ProviderConformance):
    def open(self, path: Path) -> MemoryStore:
        return MemoryStore(clock=self.clock)
