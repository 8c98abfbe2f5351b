"""The first answers of a coordinator may come to several threads at once."""

import subprocess
import sys

#: Spoils what a class that was not read yet would be read by.
PROOF = """
import msgspec
from holdfast.model.records import TABLES
from holdfast.stores.http import lookups, wire

results = [one.result for one in lookups.LOOK_UPS.values()]
structs = [one for one in msgspec.Struct.__subclasses__() if one.__module__.startswith("holdfast.")]
for one in structs:
    one.__annotations__ = {name: "nothing_of_that_name" for name in one.__struct_fields__}
for kind in [*wire.ANSWERS, *TABLES.values(), *results]:
    msgspec.json.Decoder(kind)
"""


def test_what_clients_read_is_known_before_any_thread_reads():
    """Of two threads that read the first of a kind at once, one read with a class half known, and the process ended."""
    told = subprocess.run([sys.executable, "-c", PROOF], capture_output=True, text=True, timeout=60, check=False)
    assert told.stderr == ""
    assert told.returncode == 0
