"""Another process, another hash seed: the same code comes to the same events."""

import subprocess
import sys
from pathlib import Path

from support import child_env

HERE = Path(__file__).parent

PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import msgspec
from flowskit import events, run
from asyncioprograms import PROGRAMS
from test_random_programs import program

padding = [object() for _ in range(int(sys.argv[2]))]
found = hashlib.sha256()
for number, build in enumerate([*PROGRAMS, *map(program, range(4))]):
    world = run(build, number)
    for history in events(world).values():
        for event in history:
            kept = msgspec.to_builtins(event)
            kept["kind"].pop("details", None)  # tracebacks name addresses
            found.update(msgspec.json.encode(kept))
print(found.hexdigest())
"""


def test_events_depend_on_neither_hash_seed_nor_addresses():
    found = set()
    for seed in (0, 1, 77):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(HERE), str(seed * 1000)],
            env=child_env(PYTHONHASHSEED=str(seed)),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
