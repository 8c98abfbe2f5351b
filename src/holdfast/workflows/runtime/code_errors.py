"""Errors in workflow code, as against outcomes: which exceptions block a run instead of ending it.

A NameError says that the code is wrong whatever the data; only other code gets further, and the run waits for it. A
ValueError, or a class of the user's own, is an outcome. Classes are compared exactly: a class that derives from
TypeError was written to be raised, and failures of activities, steps and children have classes of ours.
"""

from __future__ import annotations

from holdfast.errors import InvalidArguments, UnknownTask, WorkflowCodeError, WorkflowNotAllowed
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.api.error_conversion import named, traceback_of

#: Exactly these; of an exception group, any member counts.
CODE_ERRORS: frozenset[type[BaseException]] = frozenset(
    {
        AssertionError,
        AttributeError,
        ImportError,
        IndentationError,
        ModuleNotFoundError,
        NameError,
        NotImplementedError,
        RecursionError,
        SyntaxError,
        TabError,
        TypeError,
        UnboundLocalError,
        # Ours: the code called something that it may not, with arguments that do not fit, or that does not exist.
        InvalidArguments,
        UnknownTask,
        WorkflowNotAllowed,
    }
)
#: Characters of a traceback that a blocked run shows; its end is what matters.
MAX_SHOWN = 6_000


def code_error_in(problem: BaseException) -> BaseException | None:
    """Return the error in the code that an exception is, or that is a member of a group; None: it is an outcome."""
    if type(problem) in CODE_ERRORS:
        return problem
    if not issubclass(type(problem), BaseExceptionGroup):  # not isinstance: a user's `__class__` may raise
        return None
    members: tuple[BaseException, ...] = vars(BaseExceptionGroup)["exceptions"].__get__(problem)
    return next((found for member in members if (found := code_error_in(member)) is not None), None)


def code_error(definition: Definition, instance: str, execution_id: int, found: BaseException) -> WorkflowCodeError:
    """Word an error in the code, with its traceback."""
    lines = traceback_of(found)[-MAX_SHOWN:].rstrip().splitlines()
    trace = "\n".join(f"  {line}" for line in lines)
    first = (named(found).splitlines() or [""])[0]
    return WorkflowCodeError(
        f"workflow {definition.name!r} {definition.version}, instance {instance!r}, execution {execution_id}: its code "
        f"raised {first}\n{trace}",
        instance=instance,
        execution_id=execution_id,
        type_name=type(found).__name__,
    )
