"""What ends with a file of checks."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_server_stays():
    """End the server that checks over HTTP share, if this file had one."""
    yield
    if "served" in sys.modules:
        sys.modules["served"].end_server()
