"""Django, set up once for all tests of it: on a SQLite file in memory, its tasks on stores that tests lend."""

from __future__ import annotations

import django
from django.conf import settings


def pytest_configure():
    if settings.configured:
        return
    settings.configure(
        INSTALLED_APPS=["django_tasks", "holdfast.contrib.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        USE_TZ=True,
        SECRET_KEY="for tests",
        TASKS={
            "default": {
                "BACKEND": "holdfast.contrib.django.HoldfastBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {"store": "sqlite:never-opened.db"},
            },
            "patient": {
                "BACKEND": "holdfast.contrib.django.HoldfastBackend",
                "OPTIONS": {"store": "sqlite:never-opened.db", "max_attempts": 3, "timeout": 60, "on_commit": False},
            },
            "other": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
        },
    )
    django.setup()
