"""Stored texts that cannot be read: told as damage of the store, never as an error of the codec."""

import msgspec
import pytest

from holdfast.engine.engine import Engine
from holdfast.errors import HistoryCorrupt, ProviderError
from holdfast.model.jobs import Job
from holdfast.model.records import key_of
from holdfast.model.workflows.instances import Execution, Instance, KeyValue
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.conformance.provider_kit import activity, event, patch, signal, start, started
from holdfast.workflows.provider import EventKind, ExecutionMetadata, Provider, Status
from holdfast.workflows.provider import payloads as stored

#: What a record may hold after damage: no JSON, no text, half a character.
DAMAGED = (b"{", b"5", b'"\xff"', b"")


class Unused:
    """Blobs that nobody asks for."""

    def get(self, digest):
        raise AssertionError(digest)


@pytest.fixture
def provider():
    provider = Provider(Engine(MemoryStore()))
    provider.enqueue_for_orchestrator(start())
    _, token, _ = provider.fetch_orchestration_item(30.0)
    said = [
        event(2, EventKind.CustomStatusUpdated(status="s")),
        event(3, EventKind.KeyValueSet(key="k", value="v")),
    ]
    done = ExecutionMetadata(status=Status.COMPLETED, output="o")
    provider.ack_orchestration_item(token, 1, [started(), *said], [activity()], metadata=done)
    return provider


def damage(provider, kind, field, bad=b"{"):
    """Damage a field of the only record of a kind."""
    store = provider.engine.store
    with store.read() as view:
        (record,) = view.all(kind)
    store._tables.put(kind, key_of(record), msgspec.structs.replace(record, **{field: msgspec.Raw(bad)}))


@pytest.mark.parametrize("bad", DAMAGED)
def test_stored_text_that_cannot_be_read_is_damage(bad):
    with pytest.raises(HistoryCorrupt, match="cannot be read"):
        stored.text_of(Unused(), msgspec.Raw(bad))


CALLS = {
    "get_instance_info": (Execution, "output", lambda provider: provider.get_instance_info("i")),
    "get_execution_info": (Execution, "output", lambda provider: provider.get_execution_info("i", 1)),
    "get_custom_status": (Instance, "custom_status", lambda provider: provider.get_custom_status("i", 0)),
    "get_kv_value": (KeyValue, "value", lambda provider: provider.get_kv_value("i", "k")),
    "get_kv_all_values": (KeyValue, "value", lambda provider: provider.get_kv_all_values("i")),
    "get_instance_stats": (KeyValue, "value", lambda provider: provider.get_instance_stats("i")),
    "fetch_work_item": (Job, "params", lambda provider: provider.fetch_work_item(30.0)),
    "fetch_orchestration_item": (KeyValue, "value", lambda provider: provider.fetch_orchestration_item(30.0)),
}


@pytest.mark.parametrize("bad", DAMAGED)
@pytest.mark.parametrize("operation", CALLS)
def test_damaged_record_is_told_as_a_provider_error_by_the_method_that_reads_it(provider, operation, bad):
    kind, field, call = CALLS[operation]
    provider.enqueue_for_orchestrator(signal())
    damage(provider, kind, field, bad)
    with pytest.raises(ProviderError, match="cannot be read") as caught:
        call(provider)
    assert caught.value.operation == operation
    assert not caught.value.retryable
    assert isinstance(caught.value.__cause__, HistoryCorrupt)


def test_fetch_that_cannot_read_its_instance_holds_no_lock_and_is_in_nobodys_way(provider):
    damage(provider, KeyValue, "value")
    provider.enqueue_for_orchestrator(signal())
    provider.enqueue_for_orchestrator(start("j"))
    with pytest.raises(ProviderError, match="cannot be read"):
        provider.fetch_orchestration_item(30.0)
    assert provider.fetch_orchestration_item(30.0)[0].instance == "j"
    assert provider.fetch_orchestration_item(30.0) is None
    provider.append_with_execution("i", 1, [patch(9)])  # refused while the instance is locked


def test_fetch_that_cannot_read_its_activity_holds_no_lease_and_is_in_nobodys_way(provider):
    damage(provider, Job, "params")
    provider.enqueue_for_worker(activity(3))
    with pytest.raises(ProviderError, match="cannot be read"):
        provider.fetch_work_item(30.0)
    with provider.engine.read() as view:
        assert all(job.token is None for job in view.all(Job))
    assert provider.fetch_work_item(30.0)[0] == activity(3)
    assert provider.fetch_work_item(30.0) is None
