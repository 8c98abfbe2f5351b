"""A project's own Holdfast object, with a task of its own kind."""

from __future__ import annotations

from holdfast import Holdfast

hf = Holdfast("sqlite:never-opened.db")


@hf.task(name="native")
def native() -> str:
    return "native"
