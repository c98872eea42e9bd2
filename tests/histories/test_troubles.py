"""A request that is held back alone, without a sink."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.faults.chaos.plan import Step
from tests.faults.chaos.troubles import NotReachedError
from tests.histories import troubles
from tests.histories.troubles import produce_delivered_late


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
    assert sorted(proxy.done for proxy in proxies) == [[], [], ["hold 0", "hold None", "delivered"]]


def test_no_proxy_waits_for_a_request_that_did_not_come_in_time():
    proxies = [Holding(asked=False)]
    with pytest.raises(NotReachedError):
        strike(proxies)
    assert proxies[0].done == ["hold 0", "hold None"]
