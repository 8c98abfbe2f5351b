"""Which commands a client gives ids to."""

import msgspec

from holdfast.model.commands import PauseDispatch
from holdfast.model.ids import Token
from holdfast.model.workflows.commands import RenewTurn
from holdfast.stores.http.store import HttpStore
from holdfast.stores.http.wire import Facing
from holdfast.testing.clock import START, ManualClock


class _Channel:
    time = ManualClock()

    def __init__(self):
        self.sent = []

    def send(self, request, *, attempt_s=None):
        self.sent += msgspec.json.decode(request.body)["commands"]
        return b'{"outcomes":[{"answer":"done"}]}'


def test_a_renewal_gets_no_id_because_it_would_be_remembered_and_every_other_command_gets_one():
    channel = _Channel()
    store = HttpStore(channel, Facing(version="1", durability="sync", seq=0, now=START.isoformat()))
    store.decide([RenewTurn(token=Token(1), lock_s=30.0)])
    store.decide([PauseDispatch()])
    renewal, pause = channel.sent
    assert not renewal.get("cmd")
    assert len(pause["cmd"]) == 36
