"""What all tests share: how long hypothesis looks, and conformance checks that show their values when they fail."""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("holdfast.testing.conformance")

#: Long forms run only when asked for.
SOAK = os.environ.get("HOLDFAST_SOAK") == "1"

# No deadline: a slow disk is no failure. No data base: a found history becomes a plain test instead.
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=1000)
settings.load_profile("soak" if SOAK else "ci")
