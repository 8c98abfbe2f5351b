"""The provider's suite on a coordinator over `sqlite:`."""

from pathlib import Path

from served import Served, shared
from test_sqlite_conforms import TestSqlite as OnSqlite

from holdfast.testing.conformance.provider import ProviderConformance


@shared(1)
class TestProviderOnHttpOverSqlite(ProviderConformance):
    points = OnSqlite.points
    open = OnSqlite.open

    def harnessed(self, path: Path) -> Served:
        return Served(self.open, path, self.clock)
