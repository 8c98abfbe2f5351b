"""What a fetch of turns would bring: whether there is room for more, and a hope that something is there.

Read and changed by the pump's thread, but for `took`. Knows no stint; how many there are comes in as a number.
"""

from __future__ import annotations

from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View
from holdfast.workers.workflow_turns import NEVER
from holdfast.workers.workflow_turns.turn_state import IDLE_S

#: Turns under way for each that can be run at once: most wait for a commit, or for a thread for a moment.
AHEAD = 8
#: Seconds until the store is looked at again where it cannot be told when something comes.
LOOK_AGAIN_S = 0.1
#: Commands of one cycle.
MOST = 100


class Outlook:
    """What one worker may expect of its store."""

    def __init__(self, turns: int) -> None:
        """Expect to run so many turns at once."""
        self._size = turns
        #: Seconds that a thread is busy with a turn at a time, on average; long ones are not fetched ahead.
        self._mean_s = 0.0
        #: A fetch is worth a try; and as of which event one was in vain although something seemed to be there.
        self.hope = True
        self._fruitless = self._seq = -1
        #: When something is due, here or elsewhere (monotonic); and whether something was at the last look.
        self.mail_at = NEVER
        self._is_due = False
        #: Nothing is to be fetched any more.
        self.is_draining = False

    def room(self, under_way: int) -> int:
        """Count the turns that may be fetched beside those under way."""
        if self.is_draining:
            return 0
        limit = self._size * (AHEAD if self._mean_s < IDLE_S else 1)
        return max(0, min(MOST, limit - under_way))

    def took(self, seconds: float) -> None:
        """Note how long a thread was busy with a turn. By any thread: one that is not counted does no harm."""
        self._mean_s += (seconds - self._mean_s) / 8

    def tire(self) -> None:
        """Note that a turn waited for a thread in vain: no more are fetched than there are threads, for a while."""
        self._mean_s = 1.0

    def fetched(self, found: int, wanted: int) -> None:
        """Hope for more if there were as many as were asked for; else not before something happens."""
        self.hope = found == wanted
        if not found:
            self._fruitless = self._seq

    def look(self, view: View, at: Timestamp, now: float) -> None:
        """See when something is due for any instance; `at` is `now` by the store's clock."""
        self._seq = view.seq
        first = view.next_due(Lane.MAIL)
        left_s = NEVER if first is None else seconds_between(at, first)
        # What is due already is somebody's, or about to be; something later may hide behind it.
        self.mail_at = now + (left_s if left_s > 0 else LOOK_AGAIN_S)
        self._is_due = left_s <= 0

    def hope_again(self, view: View, at: Timestamp) -> None:
        """Hope if something is there to be fetched, unless it was there before and could not be had."""
        if not self.hope and self._seq != self._fruitless:
            self.hope = self._is_due or any(True for _ in view.candidates(at))

    def mail_came(self, now: float) -> bool:
        """Tell, once, that something is due, here or elsewhere; whether one may have it only the store can tell."""
        if self.mail_at > now:
            return False
        self.mail_at, self.hope = NEVER, True
        return True
