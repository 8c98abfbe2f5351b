"""What the authority does by itself: a worker's pump that leases nothing.

It ends what has lapsed, fires schedules, sends deliveries, keeps retention and looks after dead neighbours, by the very
code every local worker runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from holdfast.engine.engine import Engine
from holdfast.model.commands import Retention
from holdfast.rules.webhooks.addresses import parse_networks
from holdfast.workers.background_duties import Chores
from holdfast.workers.main_loop import Pump
from holdfast.workers.slots import Slots
from holdfast.workers.task_registry import Registry
from holdfast.workers.webhooks.dispatcher import Courier
from holdfast.workers.webhooks.send import Sender
from holdfast.workers.work_filter import Scope


class Keeper:
    """Keeps one store, in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        failed: Callable[[BaseException], None],
        allow: Sequence[str] = (),
        retention: Retention | None = None,
    ) -> None:
        """Keep the engine's store; `failed` is told, in that thread, what it ended with.

        Deliveries go to public addresses, and to the networks that `allow` names. What has ended is kept as `retention`
        says, where its queue or its workflow says nothing.
        """
        self._failed = failed
        slots = Slots(1, engine.time.clock.monotonic, lambda _desk: {})
        sender = Sender(allow=parse_networks(allow))
        self._chores = Chores(engine, slots.poke, None, Courier(engine, sender, slots.poke))
        scope = Scope(worker_id="coordinator", namespace="", queues=("default",), tasks=Registry())
        self._pump = Pump(engine, slots, scope, retention or Retention(), self._chores)
        self._pump.quiet()
        self._thread = threading.Thread(target=self._keep, name="holdfast-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, when deliveries that are on their way have arrived."""
        self._pump.drain(0)
        self._thread.join()

    def _keep(self) -> None:
        try:
            self._pump.run()
        except BaseException as error:  # noqa: BLE001 - the server must hear of it, whatever it is
            self._failed(error)
        finally:
            self._chores.close()
