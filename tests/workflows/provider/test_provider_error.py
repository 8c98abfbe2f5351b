"""ProviderError: what it says can be read and not be changed, wherever it travels."""

import copy
import pickle

import pytest

from holdfast.errors import ProviderError, StoreError


@pytest.mark.parametrize("name", ["operation", "message", "retryable"])
@pytest.mark.parametrize("make", [ProviderError.transient, ProviderError.permanent])
def test_provider_error_has_nothing_that_can_be_assigned(make, name):
    error = make("read", "no such instance", instance="i")
    before = getattr(error, name)
    with pytest.raises(AttributeError):
        setattr(error, name, "another")
    with pytest.raises(AttributeError):
        delattr(error, name)
    assert getattr(error, name) == before
    assert str(error) == "read: no such instance"


@pytest.mark.parametrize("travel", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_provider_error_says_the_same_after_a_copy(travel):
    error = travel(ProviderError.transient("read", "the store is busy", instance="i"))
    assert isinstance(error, StoreError)
    assert (error.operation, error.message, error.retryable) == ("read", "the store is busy", True)
    assert (str(error), error.facts) == ("read: the store is busy", {"instance": "i"})
