"""The suite over HTTP: every store under test is a coordinator's, reached through a real port by real clients.

One server of the process serves a coordinator for each store path, below a path of its own. The clock, the tick,
recovery and the bytes are the coordinator's; nothing happens there unless the check says so. To reopen is to end the
coordinator and begin another on the same bytes, while the client goes on as if nothing had been. Clients have no
patience: what is not answered at once is an error, so that no check waits.

Each check runs over HTTP on one of the two backings, and those about crashes and races on both. HOLDFAST_SOAK=1 runs
all of them on both.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import AsyncExitStack, suppress
from itertools import count
from zlib import crc32

import msgspec
import pytest
import uvicorn

from holdfast.engine.engine import Engine
from holdfast.errors import InvalidValue, StoreError, StoreFailed
from holdfast.model.access import LOCAL
from holdfast.model.outcomes import Brought, Fetched, Leased
from holdfast.model.records import TABLES
from holdfast.model.webhooks import Webhook
from holdfast.rules.access import may_send
from holdfast.stores.http import HttpStore
from holdfast.testing.conformance.harness import Broken, Harness, dump_of, told
from holdfast.web.guard import Door
from holdfast.web.routes import application

#: In one of so many checks, always the same, everything is read once more by the client, and compared;
#: and in one of so many, whatever changes something is sent twice.
READ_AGAIN, REPEATED = 8, 4
#: Seconds until a silent coordinator is believed to be away: on a machine at its limits the largest checks take ten.
LOADED_S = 100.0
#: Checks that count what is written, or demand that nothing is: under an id it is remembered what was done.
COUNTING = frozenset(
    {
        "test_a_completion_ends_the_job_and_tells_the_instance_in_one_commit",
        "test_a_fetch_is_durable_before_it_is_answered",
        "test_a_field_of_a_queued_job_can_be_changed_and_stays_changed",
        "test_a_group_goes_as_a_whole_when_the_last_of_it_is_old_enough",
        "test_a_group_stays_until_its_callback_and_manual_retries_are_over",
        "test_a_job_and_its_manual_retries_go_together",
        "test_a_member_stays_as_long_as_its_group_lives",
        "test_a_move_to_where_it_stands_writes_nothing",
        "test_a_queue_is_kept_as_it_says_and_the_others_as_the_store_says",
        "test_a_taken_id_does_not_keep_a_group_from_ending",
        "test_a_tree_with_a_member_that_runs_stays",
        "test_a_webhook_is_what_it_was_asked_to_be",
        "test_a_year_of_seconds_is_one_decision",
        "test_all_events_of_an_ack_form_one_group_in_order",
        "test_an_empty_list_deletes_nothing",
        "test_an_id_belongs_to_one_webhook_unless_it_is_to_be_replaced",
        "test_another_aging_reorders_the_queue_in_one_commit",
        "test_asking_a_second_time_writes_nothing",
        "test_done_jobs_go_after_seven_days_and_failed_ones_after_thirty",
        "test_each_nominal_time_makes_one_job",
        "test_ended_roots_go_after_thirty_days_with_their_trees",
        "test_many_go_in_bounded_commits_each_tree_in_one",
        "test_normalising_an_empty_queue_writes_nothing",
        "test_normalising_spaces_every_band_and_keeps_the_order",
        "test_one_commit_removes_no_more_than_its_limit",
        "test_one_key_asked_for_by_many_threads_has_one_holder",
        "test_pausing_what_is_paused_writes_nothing_unless_the_reason_differs",
        "test_replacing_returns_a_running_holder_unchanged",
        "test_resuming_what_is_not_paused_writes_nothing",
        "test_returning_the_holder_writes_nothing",
        "test_running_members_are_asked_to_stop_if_that_is_wished",
        "test_secrets_are_changed_one_after_the_other",
        "test_setting_what_is_set_writes_nothing",
        "test_settings_survive_a_restart_and_are_changed_by_name",
        "test_the_callback_is_made_in_the_commit_that_ends_the_group",
        "test_the_current_execution_stays_even_when_it_is_over",
        "test_the_same_start_again_gives_the_one_that_has_ended",
        "test_the_same_start_again_gives_the_one_that_runs",
        "test_the_same_start_again_gives_the_one_that_waits",
        "test_the_status_changes_in_the_commit_of_the_member",
        "test_the_store_may_keep_for_ever_and_not_at_all",
        "test_tokens_grow_even_when_everything_else_was_pruned",
        "test_without_a_webhook_nothing_is_owed",
    }
)
#: Checks that wait for one commit, and cannot do with another of the same.
ONCE = frozenset(
    {"test_a_reader_sees_all_of_a_commit_or_nothing", "test_commands_that_wait_for_one_commit_share_the_next"}
)
#: Answers to who asks for work.
TAKING = (Leased, Fetched, Brought)


#: Checks of these run on every backing: what they break or race lies below the coordinator.
EVERYWHERE = ("atomicity", "concurrency", "recovery", "reopening")


def shared(part):
    """Leave to a class its part of two of the checks, by their names; with HOLDFAST_SOAK=1, all of them."""

    def cut(suite):
        for name in dir(suite) if os.environ.get("HOLDFAST_SOAK") != "1" else ():
            found = getattr(suite, name)
            if name.startswith("test_") and not found.__module__.endswith(EVERYWHERE):
                setattr(suite, name, found if crc32(name.encode()) % 2 == part else None)
        return suite

    return cut


def check():
    """Name the check under way, without its parameters."""
    return os.environ["PYTEST_CURRENT_TEST"].partition("[")[0].partition(" (")[0].rpartition("::")[2]


def is_drawn(share):
    """Tell whether the check under way is one of its share."""
    return crc32(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0].encode()) % share == 0


class Server:
    """One port; below it, coordinators that come and go."""

    def __init__(self):
        self._apps = {}
        self._numbers = count(1)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            self._answer, interface="asgi3", log_config=None, lifespan="off", ws="none", proxy_headers=False
        )
        self._server = uvicorn.Server(config)
        self._loop = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), name="served", daemon=True)
        self._thread.start()
        self._begun.wait()

    def close(self):
        """End it, so that no thread of it is about while other tests run."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        await self._server.serve(sockets=[self._socket])

    async def _answer(self, scope, receive, send):
        _, number, path = scope["path"].split("/", 2)
        # What breaks a handler was answered; raised further it would cut the connection, and nobody resends here.
        with suppress(Exception):
            await self._apps[number]({**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, receive, send)

    # --- for checks, in their thread ----------------------------------------------------------------------------------

    def place(self):
        """Give the number and the URL of a place where coordinators can be put, one at a time."""
        number = str(next(self._numbers))
        return number, f"http://127.0.0.1:{self._socket.getsockname()[1]}/{number}"

    def put(self, number, engine):
        """Serve an engine there, and give how it is ended."""
        self._apps[number] = app = application(engine, Door(is_local=True), keeps=False)
        life = AsyncExitStack()
        self._do(life.enter_async_context(app.router.lifespan_context(app)))

        def end():
            # The store goes first, as if the machine had: whoever listens to it is not waited for.
            self._loop.call_soon_threadsafe(app.state.coordinator.bell.close)
            engine.close()
            self._do(life.aclose())
            del self._apps[number]

        return app.state.coordinator, end

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


#: The server of this process, while there is one.
_servers = []


def server():
    """Give the server of this process."""
    if not _servers:
        _servers.append(Server())
    return _servers[0]


def end_server():
    """End it, if there is one."""
    while _servers:
        _servers.pop().close()


class Client(HttpStore):
    """A client, beside whom the authority itself can speak: what nobody else may send is sent by it."""

    authority = None
    #: Whether its commands get ids by which a repetition is known, as they do elsewhere.
    names = True
    #: Whether all that it sends arrives a second time, as if the answer had been lost.
    repeats = False

    def decide(self, commands, **more):
        if any(_is_its_own(one) for one in commands):
            try:
                return self.authority().submit_many(commands)
            except Broken as broken:
                raise StoreFailed("the coordinator broke.") from broken
        return super().decide(commands, **more)

    def _decide(self, commands, **more):
        outcomes = super()._decide(commands, **more)
        if not self.repeats:
            return outcomes
        # What asks for work and found none may find some now; everything else has been done.
        again = super()._decide(commands, **more)
        return [later if isinstance(first, TAKING) else first for first, later in zip(outcomes, again, strict=True)]

    def _named(self, command):
        return super()._named(command) if self.names else command


def _is_its_own(command):
    """Tell whether only the authority sends this: what time asks for, and what names an opening of the store."""
    return not may_send(LOCAL, command) or getattr(command, "session_id", None) is not None


class Served(Harness):
    """A coordinator under test, and its clients."""

    breaks = StoreError

    def __init__(self, opener, path, clock):
        self._number, self._url = server().place()
        self._serve(opener, path, clock)
        super().__init__(opener, path, clock)

    def _serve(self, opener, path, clock):
        self._engine = Engine(opener(path), clock=clock)
        self._coordinator, self._end = server().put(self._number, self._engine)

    @property
    def authority(self):
        return self._engine

    def open(self):
        store = Client.open(self._url, clock=self.clock, patience_s=0)
        once = store._line._once
        store._line._once = lambda request, answer_s: once(request, max(answer_s, LOADED_S))
        store.authority = lambda: self._engine
        store.names = check() not in COUNTING
        store.repeats = store.names and check() not in ONCE and is_drawn(REPEATED)
        opened = Engine(store)
        self._opened.append(opened)
        return opened

    def neighbour(self):
        if not self._engine.store.promises.many_processes:
            pytest.skip(f"{self._engine.store.promises.name}: promises one process only")
        opened = Engine(self._opener(self._path), clock=self.clock)
        self._opened.append(opened)
        return opened

    def reopen(self):
        self._end()
        self._serve(self._opener, self._path, self.clock)
        return self.engine

    restart = reopen

    def in_line(self):
        # Threads of one client share requests: those behind the first one wait here, others at the coordinator.
        return max(0, len(self.store._others._line) - 1) + len(self._coordinator._gathering._waiting)

    def close(self):
        super().close()
        self._end()

    def dump(self):
        """Read it where it lies; `demand_sound` sees to it, in some checks, that clients are shown the same."""
        return dump_of(self._engine.store)

    def demand_sound(self):
        super().demand_sound()
        if is_drawn(READ_AGAIN):
            self._demand_alike()

    def _demand_alike(self):
        """Demand that a client is shown what the coordinator has."""
        with self._engine.read() as view:  # to its end: whoever reads may keep others out
            tables = {kind: [_shown(one) for one in view.all(kind)] for kind in TABLES.values()}
        with self.engine.read() as view:
            assert all(list(view.all(kind)) == records for kind, records in tables.items() if records)
        with suppress(InvalidValue):  # what was trimmed away cannot be compared
            feed = told(self._engine.store)
            assert [one[:2] for one in told(self.store)] == [one[:2] for one in feed]


def _shown(record):
    return msgspec.structs.replace(record, secrets=()) if isinstance(record, Webhook) else record
