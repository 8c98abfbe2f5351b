"""`holdfast decisions review`, to a person at a terminal."""

from __future__ import annotations

import msgspec
import pytest
from pseudoterminal import Terminal

from holdfast import Holdfast
from holdfast.model.workflows.decisions import Answer
from holdfast.workflows.provider.payloads import item_of

LONG = 30


@pytest.fixture
def place(tmp_path):
    return f"sqlite:{tmp_path / 'jobs.db'}"


@pytest.fixture(autouse=True)
def _asked(place):
    """Have three questions asked, one after the other; the last takes any text."""
    with Holdfast(place) as app:

        @app.workflow
        async def ask(what: str, *, free: bool = False) -> str:
            app.set_status("in doubt")
            return await app.decision(what, options=None if free else ["yes", "no"])

        for what in ("One?", "Two?", "Three?"):
            ask.start(what, id=what, free=what == "Three?")
            worker = app.worker(until_idle=True)
            worker.start()
            assert worker.join(LONG)


def answers(place):
    """Read what is on its way to the workflows."""
    with Holdfast(place) as app, app.engine.read() as view:
        mail = {name: view.mail(name) for name in ("One?", "Two?", "Three?")}
        items = {name: item_of(app.engine.store.blobs, found[0].item) for name, found in mail.items() if found}
        return {name: msgspec.json.decode(item.data, type=Answer) for name, item in items.items()}


def test_a_person_goes_through_the_open_questions(place):
    screen = Terminal(place, "decisions", "review")
    screen.until(r"One[?](.|\n)*in doubt(.|\n)*1  yes(.|\n)*quits: ")
    screen.keys("maybe\r")
    screen.until("none of them(.|\n)*quits: ")
    screen.keys("1\r")
    screen.until("Comment, if any: ")
    screen.keys("looks good\r")
    screen.until(r"Two[?](.|\n)*quits: ")
    screen.keys("s\r")
    screen.until(r"Three[?](.|\n)*quits: ")
    screen.keys("why not\r")
    screen.until(r"Three[?](.|\n)*Comment, if any: ")
    screen.keys("\r")
    text, code = screen.end()
    assert (code, "2 answered, 1 skipped" in text) == (0, True)
    told = answers(place)
    assert sorted(told) == ["One?", "Three?"]
    assert (told["One?"].chosen, told["One?"].message) == ("yes", "looks good")
    assert (told["Three?"].chosen, told["Three?"].message) == (None, "why not")


def test_a_person_may_leave_at_once(place):
    screen = Terminal(place, "decisions", "review", "--instance", "Two?")
    screen.until("quits: ")
    screen.keys("q\r")
    text, code = screen.end()
    assert (code, "0 answered, 0 skipped" in text, "One?" in text) == (0, True, False)
    assert answers(place) == {}


def test_a_question_that_another_answered_meanwhile_is_told_and_passed(place):
    screen = Terminal(place, "decisions", "review", "--instance", "Two?")
    screen.until("quits: ")
    with Holdfast(place) as app:
        (question,) = app.decisions(instance="Two?")
        question.resolve("no", by="ann")
    screen.keys("yes\r")
    screen.until("Comment, if any: ")
    screen.keys("\r")
    text, code = screen.end()
    assert (code, "is closed" in text, "0 answered" in text) == (0, True, True)
    assert answers(place)["Two?"].by == "ann"


def test_where_there_is_no_terminal_nobody_is_asked(holdfast, place):
    told = holdfast("decisions", "review", stdin="1\n")
    assert told.exit_code == 2
    assert "no terminal" in told.stderr
    assert "decisions resolve" in told.stderr
    assert answers(place) == {}
