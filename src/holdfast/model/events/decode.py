"""What reads events. Imported when the first one is read: a program that reads none does not wait for it at its start.

By an import, as that is one thread's affair while others wait: two that made a decoder at once would find the classes
half read, through which msgspec reads on until the process ends.
"""

from __future__ import annotations

import msgspec

from holdfast.model.events import Event

decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
