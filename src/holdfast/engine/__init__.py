"""The only writer: commands in, outcomes out.

`Engine.submit` walks the one path there is: read → decide → commit → answer. `tick` sends the commands that time asks
for along the same path. Nothing else writes.
"""

from holdfast.engine.engine import Engine

__all__ = ["Engine"]
