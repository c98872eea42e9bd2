"""A request that is held back alone, and a response that is lost alone, without a sink."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.faults.chaos.plan import Step
from tests.faults.chaos.troubles import NotReachedError
from tests.histories import troubles
from tests.histories.troubles import produce_delivered_late, response_lost


class Holding:
    """The proxy before a broker. ``asked``: whether the request comes by it, ``again``: whether it comes once more."""

    def __init__(self, asked, again=False):
        self.done = []
        self._asked, self.is_repeated = asked, again

    def hold_request(self, api):
        self.done.append(f"hold {api}")

    @property
    def holds(self):
        return self._asked and "delivered" not in self.done

    def deliver(self):
        self.done.append("delivered")

    def heal(self):
        self.done.append("healed")


class Cutting:
    """The proxy before a broker that cuts a response. ``asked``: whether its request comes by the proxy."""

    def __init__(self, asked):
        self._asked, self.armed = asked, False

    def cut_request(self, api, direction):
        self.armed = True

    @property
    def is_cut(self):
        return self._asked or not self.armed

    def heal(self):
        self.armed = False


def strike(proxies):
    """Returns what the history says of requests that were held back."""
    late = []
    victim = SimpleNamespace(
        proxies=dict(enumerate(proxies, 1)), record=lambda kind, **fields: late.append((kind, *fields.values()))
    )
    produce_delivered_late(victim, Step("", 0.0, 0.0, 0.5))
    return late


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(troubles, "_HAPPENS_S", 0.0)
    monkeypatch.setattr(troubles, "_REPEATED_S", 0.0)


@pytest.mark.parametrize("again", [True, False])
def test_a_produce_request_is_held_back_and_no_other_one(again):
    proxies = [Holding(asked=True, again=again) for _ in range(3)]
    assert strike(proxies) == [("late", "Produce", again)]
    assert sorted(proxy.done for proxy in proxies) == [[], [], ["hold 0", "delivered"]]


def test_no_proxy_holds_a_request_back_that_did_not_come_in_time():
    """Also not one that comes after the last look."""
    proxies = [Holding(asked=False)]
    with pytest.raises(NotReachedError):
        strike(proxies)
    assert proxies[0].done == ["hold 0", "healed"]


def test_one_response_is_lost_and_no_other_one_later():
    proxies = [Cutting(asked=node == 2) for node in (1, 2, 3)]
    response_lost(SimpleNamespace(proxies=dict(enumerate(proxies, 1))), Step("", 0.0, 0.0, 0.5))
    assert not any(proxy.armed for proxy in proxies)


def test_no_response_is_lost_that_did_not_come_in_time():
    proxy = Cutting(asked=False)
    with pytest.raises(NotReachedError):
        response_lost(SimpleNamespace(proxies={1: proxy}), Step("", 0.0, 0.0, 0.5))
    assert not proxy.armed
