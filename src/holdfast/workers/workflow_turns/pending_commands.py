"""The ledger of turns: which stints are under way, what of them is to be sent, and who may have more in a moment.

One lock guards all of it, and the fields of stints that are the desk's; it is held wherever a method does not say
otherwise. Knows no thread, no code of a turn and no answer.
"""

from __future__ import annotations

import threading
from collections import deque

from holdfast.workers.workflow_turns import Errand
from holdfast.workers.workflow_turns.turn_state import Stint, abandon
from holdfast.workers.workflow_turns.wakeup import Alarm

#: Seconds that what is to be sent waits for turns that are about to have something, so that one commit serves them all.
LINGER_S = 0.01


class Ledger:
    """The stints of one worker, and their errands."""

    def __init__(self, lock: threading.Lock, alarm: Alarm) -> None:
        self.lock = lock
        self._alarm = alarm
        #: Those under way, by token.
        self.stints: dict[int, Stint] = {}
        #: What is to be sent, in order.
        self.outbox: deque[Errand] = deque()
        #: Turns that threads advance or soon will: each may have something to send in a moment.
        self.coming = 0

    def expect(self, stint: Stint, *, coming: bool) -> None:
        """Note whether a stint may have something to send in a moment; after the last one what waits for it is sent."""
        if stint.is_coming is not coming:
            stint.is_coming = coming
            self.coming += 1 if coming else -1
            if self.outbox and not self.coming:
                self._alarm.poke()

    def post(self, errand: Errand) -> None:
        """Have it sent soon, with what others have by then: whoever comes last may take longer."""
        self.outbox.append(errand)
        if len(self.outbox) == 1:
            self._alarm.ring(self._alarm.now() + LINGER_S)

    def may_send(self, stint: Stint) -> bool:
        """Tell whether a commit may be made now; if so, nothing is fetched until it is answered. Takes the lock."""
        with self.lock:
            if stint.is_fetching:
                return False
            stint.is_sending = True
            return True

    def send_back(self, stint: Stint, reason: str | None, *, counted: bool, delay_s: float | None = None) -> None:
        """Have an instance given back; what its turn still does is ignored."""
        stint.is_gone = stint.is_sending = True
        self.post(Errand("abandon", abandon(stint, reason, counted=counted, delay_s=delay_s), stint, is_last=True))

    def end(self, stint: Stint) -> None:
        """Strike a stint off."""
        stint.is_gone = True
        self.expect(stint, coming=False)
        self.stints.pop(stint.token, None)
