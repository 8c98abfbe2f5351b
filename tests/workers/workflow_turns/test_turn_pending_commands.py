"""The ledger of turns: what is to be sent goes in order, soon, and never beside a fetch of the same stint."""

from stintkit import Clockwork, stint

from holdfast.workers.workflow_turns import Errand
from holdfast.workers.workflow_turns.pending_commands import LINGER_S


def test_the_first_errand_wakes_the_pump_and_those_behind_it_go_along():
    works = Clockwork()
    works.sleep()
    works.post(Errand("park", None))
    works.post(Errand("ack", None))
    assert works.pokes == 1
    assert works.sent == ["park", "ack"]


def test_an_errand_waits_a_moment_for_others_and_a_pump_that_wakes_by_then_is_left_alone():
    works = Clockwork()
    works.sleep(works.time + LINGER_S)
    works.post(Errand("ack", None))
    assert works.pokes == 0


def test_what_waits_for_turns_that_are_coming_is_sent_after_the_last_of_them():
    works = Clockwork()
    one, other = stint(1), stint(2)
    for coming in (one, other, one):  # said twice, it comes once
        works.ledger.expect(coming, coming=True)
    works.post(Errand("ack", None))
    works.sleep()
    works.ledger.expect(one, coming=False)
    works.ledger.expect(one, coming=False)
    assert (works.ledger.coming, works.pokes) == (1, 0)
    works.ledger.expect(other, coming=False)
    assert (works.ledger.coming, works.pokes) == (0, 1)


def test_where_nothing_waits_the_last_that_comes_wakes_nobody():
    works = Clockwork()
    one = stint()
    works.sleep()
    works.ledger.expect(one, coming=True)
    works.ledger.expect(one, coming=False)
    assert works.pokes == 0


def test_no_commit_is_made_while_messages_are_fetched():
    works = Clockwork()
    one = stint()
    one.is_fetching = True
    assert not works.ledger.may_send(one)
    assert not one.is_sending
    one.is_fetching = False
    assert works.ledger.may_send(one)
    assert one.is_sending  # from here on nothing is fetched


def test_an_instance_is_given_back_by_the_last_errand_of_its_stint():
    works = Clockwork()
    one = stint(7)
    with works.lock:
        works.ledger.send_back(one, "why", counted=False, delay_s=2.0)
    (errand,) = works.ledger.outbox
    assert (errand.kind, errand.stint, errand.is_last) == ("abandon", one, True)
    asked = errand.command
    assert (asked.token, asked.reason, asked.given_back, asked.delay_s) == (7, "why", True, 2.0)
    assert one.is_gone
    assert one.is_sending


def test_a_stint_that_is_struck_off_comes_no_more_and_others_stay():
    works = Clockwork()
    one, other = works.begin(stint(1)), works.begin(stint(2))
    works.ledger.expect(one, coming=True)
    for _ in range(2):
        works.ledger.end(one)
        assert (works.ledger.stints, works.ledger.coming, one.is_gone) == ({2: other}, 0, True)
