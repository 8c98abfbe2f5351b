"""The conformance suite on a coordinator over `sqlite:`."""

from pathlib import Path

from served import Served, shared
from test_sqlite_conforms import TestSqlite as OnSqlite

from holdfast.testing.conformance import Conformance


@shared(1)
class TestHttpOverSqlite(Conformance):
    points = OnSqlite.points
    open = OnSqlite.open
    plant = OnSqlite.plant

    def harnessed(self, path: Path) -> Served:
        return Served(self.open, path, self.clock)
