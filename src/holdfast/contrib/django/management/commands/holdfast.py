"""`manage.py holdfast …`: the commands of Holdfast for the store of a backend."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from holdfast.contrib import commandline
from holdfast.contrib.django.backend import HoldfastBackend
from holdfast.contrib.django.tasks import task_backends


class Command(BaseCommand):
    """Hands everything on to the command line of Holdfast."""

    help = "Jobs: `holdfast worker` runs them, `holdfast jobs ls` lists them, `holdfast help` knows the rest."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take the backend, then whatever follows."""
        parser.add_argument("--backend", default="default", help="Alias of the backend in TASKS; by default `default`.")
        parser.add_argument("words", nargs=argparse.REMAINDER, help="A command of Holdfast with its options.")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run the command; the process ends with its exit code."""
        alias = options["backend"]
        backend = task_backends[alias]
        if not isinstance(backend, HoldfastBackend):
            raise CommandError(f"The task backend {alias!r} is a {type(backend).__name__}, not Holdfast's.")
        commandline.run(backend.hf, options["words"], "manage.py holdfast")
