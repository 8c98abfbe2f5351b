"""What all tests share: how long hypothesis looks, where folders are, and what keeps thousands of tests quick.

Folders of tests are real files in memory (`/dev/shm`) where there is room for them: nobody pulls the plug here, and a
fifth of what the stores' tests cost is waiting for a disk. Tests marked `disk`, which kill processes, have theirs on
the disk all the same; with `HOLDFAST_TEST_DISK=1`, and in the long forms, all have.
"""

import compileall
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import holdfast

pytest.register_assert_rewrite("holdfast.testing.conformance")

#: Long forms run only when asked for.
SOAK = os.environ.get("HOLDFAST_SOAK") == "1"

# No deadline: a slow disk is no failure. No data base: a found history becomes a plain test instead.
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=1000)
settings.load_profile("soak" if SOAK else "ci")

_IN_MEMORY = Path("/dev/shm")
_ENOUGH = 2 << 30  # bytes; a whole run leaves less

if (
    not SOAK
    and os.environ.get("HOLDFAST_TEST_DISK") != "1"
    and os.access(_IN_MEMORY, os.W_OK)
    and shutil.disk_usage(_IN_MEMORY).free > _ENOUGH
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_configure(config):
    config.addinivalue_line("markers", "disk: its folder is on the disk, whatever there is in memory")
    if sys.dont_write_bytecode and "PYTEST_XDIST_WORKER" not in os.environ:
        # Hundreds of tests start Python: without compiled copies each start reads the whole source anew.
        compileall.compile_dir(Path(holdfast.__file__).parent, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect with compiled copies of the tests; what is collected stays, so the garbage collector need not look."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def tmp_path(request, tmp_path):
    """Give a test that is marked `disk` a folder there."""
    if request.node.get_closest_marker("disk") is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        yield Path(folder)
