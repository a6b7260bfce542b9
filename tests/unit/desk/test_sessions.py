"""Sessions: they end when nobody is there, and in any case at the end of the day."""

from __future__ import annotations

from cape.desk.access.people import Person
from cape.desk.access.sessions import Sessions
from tests.unit.desk.clock import Clock

ANA = Person("ana", "steward")


def test_a_session_is_found_by_its_token_only():
    sessions = Sessions()
    token = sessions.begin(ANA)
    found = sessions.find(token)
    assert found is not None
    assert found.person == ANA
    assert sessions.find(token[:-1]) is None
    assert sessions.find("") is None
    assert token not in repr(vars(sessions)), "who reads the table cannot log in with it"


def test_it_ends_after_an_idle_time_that_requests_renew():
    clock = Clock()
    sessions = Sessions(idle=60, whole=3600, clock=clock)
    token = sessions.begin(ANA)
    for _ in range(10):
        clock.now += 59
        assert sessions.find(token) is not None
    clock.now += 60
    assert sessions.find(token) is None


def test_what_a_page_asks_for_by_itself_does_not_renew_it():
    clock = Clock()
    sessions = Sessions(idle=60, whole=3600, clock=clock)
    token = sessions.begin(ANA)
    clock.now += 59
    assert sessions.find(token, renew=False) is not None
    clock.now += 1
    assert sessions.find(token, renew=False) is None


def test_it_ends_after_the_whole_time_however_busy_its_person_is():
    clock = Clock()
    sessions = Sessions(idle=60, whole=300, clock=clock)
    token = sessions.begin(ANA)
    for _ in range(5):
        assert sessions.find(token) is not None
        clock.now += 59
    assert sessions.find(token) is not None
    clock.now += 5
    assert sessions.find(token) is None


def test_logging_out_ends_it_and_no_other():
    sessions = Sessions()
    one, two = sessions.begin(ANA), sessions.begin(ANA)
    sessions.end(one)
    assert sessions.find(one) is None
    assert sessions.find(two) is not None


def test_too_many_sessions_end_the_one_that_was_idle_for_longest():
    clock = Clock()
    sessions = Sessions(clock=clock)
    first = sessions.begin(ANA)
    for _ in range(1000):
        clock.now += 0.001
        sessions.begin(ANA)
    assert sessions.find(first) is None


def test_each_session_has_a_token_for_forms_of_its_own():
    sessions = Sessions()
    found = {sessions.find(sessions.begin(ANA)).csrf for _ in range(3)}  # type: ignore[union-attr]
    assert len(found) == 3


def test_a_sentence_is_said_once():
    sessions = Sessions()
    session = sessions.find(sessions.begin(ANA))
    assert session is not None
    for number in range(9):
        session.say(str(number))
    assert session.take_said() == ["4", "5", "6", "7", "8"]
    assert session.take_said() == []
