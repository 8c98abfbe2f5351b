"""The provider's suite on a coordinator over `wal:`."""

from pathlib import Path

from served import Served, shared
from test_http_over_wal import TestHttpOverWal as OverWal

from holdfast.testing.conformance.provider import ProviderConformance


@shared(0)
class TestProviderOnHttpOverWal(ProviderConformance):
    points = OverWal.points
    open = OverWal.open

    def harnessed(self, path: Path) -> Served:
        return Served(self.open, path, self.clock)
