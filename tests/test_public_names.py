"""The error tree is what its drawing says: every name, its place, its code and what the command line exits with."""

import inspect
import re
import subprocess
import sys

import pytest

import holdfast
from holdfast import errors
from holdfast.errors import BY_CODE, HoldfastError


def drawn():
    """Read the drawing: name → (parent, built-in it also is), and name → exit code where one is written."""
    tree, exits = {}, {"HoldfastError": HoldfastError.exit_code}
    branches = []  # (column, name) of the branches this line may hang on
    parent = last = None
    for line in inspect.getdoc(errors).split("\n\n")[1].splitlines():
        indent, mark, rest = re.match(r"    ([│ ]*)([├└]─|─|·|) ?(.*)", line).groups()
        if mark in ("├─", "└─"):
            branches = [branch for branch in branches if branch[0] < len(indent)]
            parent = branches[-1][1]
        elif mark == "─":  # the children of the branch above, on a line of their own; a "·" goes on with the list above
            parent = last
        names = re.split(r"\s{2,}", rest)[0]
        for number, entry in enumerate(re.split(r" (?=[─·] )", names)):
            if entry.startswith("─"):
                parent = last
            last, builtin, exit_code = re.match(
                r"(?:[─·] )?(\w+)(?: \(an? (\w+) too\))?(?: \(exit (\d)\))?", entry
            ).groups()
            tree[last] = (parent, builtin)
            at_the_margin = re.search(r"exit (\d)$", rest)
            if exit_code or (at_the_margin and number == 0):
                exits[last] = int(exit_code or at_the_margin[1])
            if number == 0 and mark in ("├─", "└─", ""):
                branches.append((len(indent) if mark else -1, last))
    return tree, exits


TREE, EXITS = drawn()
CLASSES = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, HoldfastError)
}


def exit_of(name):
    while name not in EXITS:
        name = TREE[name][0]
    return EXITS[name]


def test_every_class_is_drawn_and_every_name_drawn_is_a_class():
    assert set(TREE) == set(CLASSES)
    assert len(TREE) > 60


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_stands_where_it_is_drawn(name):
    kind = CLASSES[name]
    parent, builtin = TREE[name]
    assert kind.__bases__[0].__name__ == (parent or "Exception")
    assert [base.__name__ for base in kind.__bases__[1:]] == ([builtin] if builtin else [])
    assert kind.__doc__
    assert kind.exit_code == exit_of(name)


def test_the_drawing_is_read_as_a_person_would():
    assert TREE["RecordTooLarge"] == ("PayloadTooLarge", None)
    assert TREE["DecisionNotFound"] == ("NotFound", None)
    assert TREE["InvalidValue"] == ("UsageError", "ValueError")
    assert TREE["ReservationTimeout"] == ("Refused", "TimeoutError")
    assert TREE["HistoryCorrupt"] == ("StoreDamaged", None)
    assert TREE["ChildCancelled"] == ("ChildError", None)
    assert TREE["StepError"] == ("WorkFailed", None)
    assert (exit_of("JobNotFound"), exit_of("StoreLocked"), exit_of("StoreBusy"), exit_of("JobCancelled")) == (
        3,
        6,
        7,
        4,
    )
    assert (exit_of("JobFailed"), exit_of("InvalidValue"), exit_of("LeaseLost")) == (1, 2, 6)


def test_codes_are_unique_and_the_names_in_snake_case():
    ours = {code: kind for code, kind in BY_CODE.items() if kind.__module__ == errors.__name__}
    assert len(ours) == len(CLASSES) - 1  # all but the root
    for code, kind in ours.items():
        assert kind.code == code
        assert "".join(word.capitalize() for word in code.split("_")) == kind.__name__
    assert BY_CODE["job_not_found"] is errors.JobNotFound


@pytest.mark.parametrize("kind", sorted(set(BY_CODE.values()), key=lambda kind: kind.code))
def test_an_error_says_what_happened_and_the_next_step_and_carries_its_facts(kind):
    error = kind("it broke.", hint="Mend it.", job_id="j")
    assert (str(error), error.message, error.hint, error.facts) == (
        "it broke. Mend it.",
        "it broke.",
        "Mend it.",
        {"job_id": "j"},
    )
    assert str(kind("it broke.")) == f"it broke. {kind.default_hint}".rstrip()


def test_public_names_are_sorted_few_and_found_where_they_live():
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert len(holdfast.__all__) <= 30
    for name in holdfast.__all__:
        assert getattr(holdfast, name).__name__ == name
    assert set(holdfast.__all__) < set(dir(holdfast))
    with pytest.raises(AttributeError):
        _ = holdfast.nonsense


def test_importing_the_package_imports_no_store_and_no_worker():
    code = "import sys, holdfast; print(*(name for name in sys.modules if name.startswith('holdfast.')))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "holdfast.version\n"
