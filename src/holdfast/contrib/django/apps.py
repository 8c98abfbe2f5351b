"""The Django application, which is there for its command. It does nothing when it is ready."""

from __future__ import annotations

from django.apps import AppConfig


class HoldfastConfig(AppConfig):
    """Names the application."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"
