"""The engine behind `open_store(url).provider`: one for each store and process, recovered before it grants anything."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import ProviderError, StoreBusy
from holdfast.failpoints import listening
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.provider_kit import activity, signal, start, started
from holdfast.workflows import provider as opened_provider
from holdfast.workflows.provider import open_store

#: Stores that belong to one process: what an earlier opening held ends when the store is opened again.
ONE_PROCESS = ("dir", "wal")
STORES = ("memory", *ONE_PROCESS, "sqlite")
CALLERS = 8


@pytest.fixture
def opened():
    """Open stores that are closed in the end."""
    stores = []

    def opened(url, **options):
        stores.append(open_store(url, **options))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def url_of(scheme, tmp_path):
    return "memory:" if scheme == "memory" else f"{scheme}:{tmp_path / 'store'}"


def with_locks_left_behind(url):
    """Make a store of one process whose process ended while it held instances and activities."""
    store = open_store(url)
    for number in range(CALLERS):
        store.provider.enqueue_for_orchestrator(start(f"i{number}"))
        store.provider.enqueue_for_worker(activity(instance=f"i{number}"))
        assert store.provider.fetch_orchestration_item(3600.0) is not None
        assert store.provider.fetch_work_item(3600.0) is not None
    store.close()


@pytest.mark.parametrize("scheme", STORES)
def test_first_calls_of_two_threads_share_one_engine(scheme, tmp_path, opened, monkeypatch):
    provider = opened(url_of(scheme, tmp_path)).provider
    second = threading.Thread(target=provider.list_instances)
    arrived = threading.Event()
    made = []

    class Counted(opened_provider.Engine):
        def __init__(self, *args, **options):
            made.append(threading.current_thread())
            if len(made) == 1:
                # The second thread makes its first call while the engine of this one is not there yet.
                with listening("provider.engine", arrived.set):
                    second.start()
                    arrived.wait()
            else:
                arrived.set()
            super().__init__(*args, **options)

    monkeypatch.setattr(opened_provider, "Engine", Counted)
    provider.list_instances()
    second.join()
    assert made == [threading.current_thread()]


@pytest.mark.parametrize("scheme", ONE_PROCESS)
def test_engine_is_handed_out_only_after_its_recovery(scheme, tmp_path, opened, monkeypatch):
    with_locks_left_behind(url_of(scheme, tmp_path))
    provider = opened(url_of(scheme, tmp_path)).provider
    arrived = threading.Event()
    order = []

    def fetch():
        _, token, _ = provider.fetch_orchestration_item(30.0)
        order.append("granted")
        provider.renew_orchestration_item_lock(token, 60.0)

    second = threading.Thread(target=fetch)

    def recover(engine):
        with listening("provider.engine", arrived.set):
            second.start()
            arrived.wait()
        report = real(engine)
        order.append("recovered")
        return report

    real = opened_provider.recover
    monkeypatch.setattr(opened_provider, "recover", recover)
    provider.list_instances()
    second.join()
    assert order == ["recovered", "granted"]


@pytest.mark.parametrize("scheme", ONE_PROCESS)
def test_locks_granted_to_many_threads_right_after_a_restart_last(scheme, tmp_path, opened):
    with_locks_left_behind(url_of(scheme, tmp_path))
    provider = opened(url_of(scheme, tmp_path)).provider
    together = threading.Barrier(CALLERS)

    def work(_):
        together.wait()
        item, token, _ = provider.fetch_orchestration_item(30.0)
        job, job_token, _ = provider.fetch_work_item(30.0)
        together.wait()
        provider.renew_orchestration_item_lock(token, 30.0)
        provider.renew_work_item_lock(job_token, 30.0)
        provider.ack_orchestration_item(token, 1, [started(item.instance)])
        provider.ack_work_item(job_token)
        return item.instance, job.instance

    with ThreadPoolExecutor(CALLERS) as pool:
        taken = list(pool.map(work, range(CALLERS)))
    everyone = [f"i{number}" for number in range(CALLERS)]
    assert sorted(instance for instance, _ in taken) == everyone
    assert sorted(instance for _, instance in taken) == everyone


def test_recovery_that_failed_is_repeated_on_the_same_engine(opened, monkeypatch):
    provider = opened("memory:", clock=ManualClock()).provider
    recovered = []

    def recover(engine):
        recovered.append(engine)
        if len(recovered) == 1:
            raise StoreBusy("the store is busy.")
        return real(engine)

    real = opened_provider.recover
    monkeypatch.setattr(opened_provider, "recover", recover)
    with pytest.raises(ProviderError) as caught:
        provider.enqueue_for_worker(activity())
    assert caught.value.retryable
    provider.enqueue_for_worker(activity())
    provider.enqueue_for_orchestrator(signal())
    assert len(recovered) == 2
    assert recovered[0] is recovered[1] is provider.engine


def test_forked_child_does_not_make_an_engine_on_the_store_of_its_parent(tmp_path, opened):
    provider = opened(f"dir:{tmp_path / 'store'}").provider
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            provider.enqueue_for_orchestrator(start())
            os.write(writer, b"stored")
        except ProviderError as error:
            os.write(writer, error.message.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert "before the process forked" in told.read()
    assert provider.get_queue_depths().orchestrator_queue == 0
