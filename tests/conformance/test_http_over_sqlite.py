"""The conformance suite on a coordinator over `sqlite:`."""

from pathlib import Path

from served import Served
from test_sqlite_conforms import TestSqlite as OnSqlite

from holdfast.testing.conformance import Conformance


class TestHttpOverSqlite(Conformance):
    points = OnSqlite.points
    open = OnSqlite.open
    plant = OnSqlite.plant

    def harnessed(self, path: Path) -> Served:
        return Served(self.open, path, self.clock)
