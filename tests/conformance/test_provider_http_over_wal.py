"""The provider's suite on a coordinator over `wal:`."""

import os
from pathlib import Path

from served import Served, shared
from test_http_over_wal import TestHttpOverWal as OverWal

from holdfast.testing.conformance.provider import ProviderConformance


@shared(0)
class TestProviderOnHttpOverWal(ProviderConformance):
    # A turn may break before its commit, within it and behind it; `wal:` itself is broken at all of them.
    points = OverWal.points if os.environ.get("HOLDFAST_SOAK") == "1" else (*OverWal.points[:2], *OverWal.points[3::3])
    open = OverWal.open

    def harnessed(self, path: Path) -> Served:
        return Served(self.open, path, self.clock)
