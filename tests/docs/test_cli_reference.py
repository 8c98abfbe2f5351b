"""The page of the command line names every command, option and exit code there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import click

from holdfast.cli.render.errors import BUG, INTERRUPTED, TIMED_OUT
from holdfast.cli.root import COMMANDS, cli
from holdfast.errors import BY_CODE

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()


def leaves(command, path, parent):
    ctx = click.Context(command, parent=parent, info_name=path[-1])
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(ctx):
        yield from leaves(command.get_command(ctx, name), [*path, name], ctx)


def commands():
    root = click.Context(cli, info_name="holdfast")
    return dict(found for name in COMMANDS for found in leaves(cli.get_command(root, name), [name], root))


def documented():
    """Command → the text of its section."""
    _, *parts = re.split(r"^### `holdfast ([a-z ]+[a-z])[^`]*`$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def options(text):
    return set(re.findall(r"`(--[a-z][a-z-]*)", text))


def names(command):
    return {
        name for param in command.params if isinstance(param, click.Option) for name in param.opts if name[:2] == "--"
    }


def test_every_command_has_its_section_and_no_other_has_one():
    assert sorted(documented()) == sorted(commands())


def test_every_section_names_the_options_of_its_command_and_no_other():
    sections = documented()
    for name, command in commands().items():
        assert options(sections[name]) == names(command), name


def test_every_argument_stands_in_its_heading():
    for name, command in commands().items():
        heading = re.search(rf"^### `holdfast {name}([^`]*)`$", PAGE, re.MULTILINE)[1].split()
        assert len(heading) == sum(isinstance(param, click.Argument) for param in command.params), name


def test_shared_options_are_explained_once_and_used():
    shared = options(PAGE.partition("| shared option |")[2].partition("With `-o json`")[0])
    assert shared <= {option for command in commands().values() for option in names(command)}
    for section in documented().values():
        assert set(re.findall(r"`(--[a-z-]+)`", section.partition("Shared:")[2])) <= shared


def test_exit_codes_are_those_that_are_used():
    listed = {int(code) for code in re.findall(r"^\| (\d+) \| ", PAGE, re.MULTILINE)}
    assert listed == {0, TIMED_OUT, BUG, INTERRUPTED, *(error.exit_code for error in BY_CODE.values())}
