"""Tools that only our own tests use: simulated disks, fault injection, processes to be killed and what checks them.

pytest puts `tests` on the path (`pythonpath` in pyproject.toml), so tests import `support.<module>`. A child process
that imports from here is started with `child_env()`. Tools for users are in `holdfast.testing`.
"""

from __future__ import annotations

import os
from pathlib import Path

_TESTS = str(Path(__file__).parents[1])


def child_env(**variables: str) -> dict[str, str]:
    """Return this process's environment, with `variables`, for a child process that imports `support`."""
    path = os.pathsep.join(filter(None, (_TESTS, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **variables}
