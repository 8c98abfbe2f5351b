"""The courier: takes deliveries that are due, sends them, records what came of it. In threads of its own.

It sleeps until its worker says that something is due, and has no thread before the first time. A few deliveries are on
their way at once, and whoever has none on its way comes first: a receiver that is slow, however much it is owed, keeps
others waiting for one try at most. What it does not get to record is due again when the claim lapses.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.failpoints import reach
from holdfast.model.commands import ClaimDeliveries, EndDelivery
from holdfast.model.outcomes import Claim, Claimed, Outcome, Refusal
from holdfast.model.times import milliseconds
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.rules.webhooks.signatures import HEADER, signature
from holdfast.workers.webhooks.send import Reply, Sender

log = logging.getLogger("holdfast.webhooks")

#: Deliveries on their way at once.
HANDS = 8
#: Seconds until the next try when the store refused a claim.
RETRY_S = 1.0
_NEVER = float("inf")


def deliver(engine: Engine, sender: Sender, claim: Claim) -> Outcome | None:
    """Send a claimed delivery and record what came of it; None if it is not there any more. Raises StoreError."""
    with engine.read() as view:
        delivery = view.get(Delivery, claim.delivery_id)
        webhook = None if delivery is None else view.get(Webhook, delivery.webhook_id)
    if delivery is None or webhook is None:
        return None  # removed a moment ago; the next claim ends it
    reach("webhook.sending")
    body = delivery.body.encode()
    headers = {
        "Holdfast-Event": delivery.event,
        "Holdfast-Delivery": delivery.delivery_id,
        "Idempotency-Key": delivery.run_id,
        HEADER: signature(webhook.secrets, body, milliseconds(engine.look().now) // 1000),
    }
    reply = sender.send(webhook.url, headers, body)
    reach("webhook.sent")
    _tell(delivery, reply)
    return engine.submit(
        EndDelivery(
            delivery_id=claim.delivery_id,
            claimed_until=claim.claimed_until,
            status=reply.status,
            error=reply.error,
        )
    )


def _tell(delivery: Delivery, reply: Reply) -> None:
    # Never the address: in some it is the secret.
    facts = {"delivery": delivery.delivery_id, "webhook": delivery.webhook_id, "run": delivery.run_id}
    log.info("delivery.tried", extra={**facts, "status": reply.status, "problem": reply.error})


class Courier:
    """Sends the deliveries of one store for one worker."""

    def __init__(self, engine: Engine, sender: Sender, poke: Callable[[], None]) -> None:
        """Send by `sender`; `poke` wakes the worker when there may be something new to see."""
        self._engine = engine
        self._sender = sender
        self._poke = poke
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: Something is due, as far as anybody knows.
        self._wanted = False
        self._under_way = 0
        #: Webhook → deliveries for it that are on their way.
        self._sending: Counter[str] = Counter()
        self._closed = self._hurried = False
        #: When the next delivery is due (monotonic); told by the worker, who looks into the store.
        self.due_at = _NEVER

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way and nothing is known to be due."""
        with self._changed:
            return not self._wanted and not self._under_way

    def run(self, now: float) -> None:
        """Begin with what is due, if anything is; returns at once."""
        if now < self.due_at or self._closed:
            return
        self.due_at = _NEVER
        with self._changed:
            self._wanted = True
            self._changed.notify_all()
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="holdfast-courier", daemon=True)
            try:
                thread.start()
            except RuntimeError as problem:  # the system has no thread left, perhaps for a moment only
                log.warning("courier.not_started", extra={"problem": str(problem)})
                self.due_at = now + RETRY_S
                return
            self._thread = thread

    def close(self, wait_s: float) -> None:
        """Begin nothing more, and wait so long for what is on its way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._hurried or not self._under_way, wait_s)

    def hurry(self) -> None:
        """Wait for nothing any more."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    # --- its own threads ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._wanted and self._under_way < HANDS))
                if self._closed:
                    return
                free = HANDS - self._under_way
                # Whoever says so from here on has seen something that this claim may miss.
                self._wanted = False
                self._under_way += free
                sending = tuple(self._sending.elements())
            claims = self._claim(free, sending)
            with self._changed:
                self._sending.update(claim.webhook_id for claim in claims or ())
                self._under_way -= free - len(claims or ())
                # With its hands full there may be more; and what was refused is still to be had.
                self._wanted |= claims is None or len(claims) == free
                self._changed.notify_all()
            for claim in claims or ():
                self._hand_over(claim)
            if not claims:
                self._poke()

    def _claim(self, limit: int, sending: tuple[str, ...]) -> tuple[Claim, ...] | None:
        """Take what is due, for others than those who are being sent to if there are; None if the store refused."""
        try:
            outcome = self._engine.ask(ClaimDeliveries(limit=limit, under_way=sending))
        except HoldfastError as problem:
            # Its worker meets the same trouble and reports it.
            log.warning("courier.refused", extra={"problem": problem.message})
            with self._changed:
                self._changed.wait_for(lambda: self._closed, RETRY_S)
            return None
        assert isinstance(outcome, Claimed)
        reach("webhook.claimed")
        return outcome.claims

    def _hand_over(self, claim: Claim) -> None:
        thread = threading.Thread(target=self._carry, args=(claim,), name="holdfast-delivery", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread left: by its own hands, then
            self._carry(claim)

    def _carry(self, claim: Claim) -> None:
        try:
            outcome = deliver(self._engine, self._sender, claim)
            if isinstance(outcome, Refusal):
                log.warning("delivery.late", extra={"delivery": claim.delivery_id, "code": outcome.code})
        except HoldfastError as problem:
            # Not recorded: it is sent again when the claim has lapsed.
            log.warning("delivery.not_recorded", extra={"delivery": claim.delivery_id, "problem": problem.message})
        except Exception:  # the others must go on; this one is due again when its claim has lapsed
            log.exception("delivery.broke", extra={"delivery": claim.delivery_id})
        finally:
            with self._changed:
                self._under_way -= 1
                self._sending[claim.webhook_id] -= 1
                self._changed.notify_all()
            self._poke()
