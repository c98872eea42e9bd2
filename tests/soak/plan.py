"""What happens in each round: drawn from the seed alone, so that a run can be repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from random import Random
from typing import NamedTuple

from tests.soak import network_troubles, troubles
from tests.soak.troubles import Victim, pick

_MORE = (0, 1, 1, 2)
_LONGEST_S = 12.0
_APART_S = 4.0


@dataclass(frozen=True)
class Step:
    """``at``: seconds after the round began. ``draw``: from 0 to 1, seeds what the trouble itself leaves to chance."""

    trouble: str
    at: float
    seconds: float
    draw: float

    def random(self, what: str = "") -> Random:
        """A new sequence of decisions, the same one at each call. ``what``: each has a sequence of its own."""
        return Random(f"{self.draw}/{what}")

    def __str__(self) -> str:
        return f"{self.trouble} (after {self.at:.1f} s, for {self.seconds:.1f} s, {self.draw:.3f})"


Round = Sequence[Step]


class Trouble(NamedTuple):
    """``needs``: what it has to itself; two that need the same do not happen together."""

    act: Callable[[Victim, Step], None]
    needs: frozenset[str]


_NEEDS = {
    troubles.broker_killed: "brokers",
    troubles.broker_stopped: "brokers",
    troubles.majority_stopped: "brokers",
    troubles.too_few_in_sync: "brokers",
    troubles.broker_restarted: "brokers",
    troubles.broker_upgraded: "brokers",
    troubles.election_inside_planning: "brokers point",
    troubles.election_inside_commit: "brokers point",
    troubles.driver_killed: "driver",
    troubles.driver_terminated: "driver",
    troubles.driver_stopped: "driver",
    troubles.driver_replaced: "driver point",
    troubles.query_stopped: "driver point query",
    troubles.killed_at_a_point: "point",
    troubles.executor_killed: "executors",
    troubles.executor_stopped: "executors",
    troubles.worker_killed: "workers",
    troubles.workers_outlive_the_driver: "driver executors workers point",
    troubles.transaction_protocol_changed: "protocol",
    network_troubles.cut_off_from_a_broker: "network",
    network_troubles.cut_off_from_all_brokers: "network",
    network_troubles.connections_fall_silent: "network",
    network_troubles.requests_arrive_late: "network",
    network_troubles.responses_arrive_late: "network",
    network_troubles.network_is_slow: "network",
    network_troubles.response_lost: "network",
    network_troubles.request_delivered_late: "network transactions",
    network_troubles.produce_delivered_late: "network",
    network_troubles.brokers_parted: "brokers",
    network_troubles.brokers_parted_on_one_side: "brokers",
}
TROUBLES: Mapping[str, Trouble] = {
    act.__name__.replace("_", " "): Trouble(act, frozenset(needs.split())) for act, needs in _NEEDS.items()
}
UPGRADE = "broker upgraded"
_UPGRADED_EVERY = 3  # rounds, or a run would end before all brokers are upgraded
_OF_WORKLOADS = frozenset({"executors", "point", "query", "transactions", "workers"})


def troubles_for(having: Sequence[frozenset[str]], *, upgrades: bool) -> dict[str, Trouble]:
    """Those that a run can do. ``having``: what each of its workloads has."""
    return {
        name: each
        for name, each in TROUBLES.items()
        if (upgrades or name != UPGRADE) and any(_fits(has, each) for has in having)
    }


def _fits(has: frozenset[str], trouble: Trouble) -> bool:
    return trouble.needs & _OF_WORKLOADS <= has


def victim_of(step: Step, victims: Mapping[str, Victim]) -> Victim:
    """The one that it is drawn for, of those that have what the trouble needs."""
    fitting = [each for each in victims.values() if _fits(each.workload.has, TROUBLES[step.trouble])]
    return pick(fitting, step.random("victim"))


def rounds(seed: int, minutes: float, chosen: Mapping[str, Trouble]) -> Iterator[Round]:
    """Those of the seed; none begins after so many minutes."""
    until = time.monotonic() + 60 * minutes
    return takewhile(lambda _: time.monotonic() < until, drawn(seed, chosen))


def drawn(seed: int, chosen: Mapping[str, Trouble]) -> Iterator[Round]:
    """Rounds without end, of up to three troubles that go together.

    The first one is taken from all of them in turn, so that none is missing in as many rounds as there are troubles.
    What is upgraded every so many rounds takes nobody's turn.
    """
    random = Random(seed)
    turn: list[str] = []
    for number in count(1):
        if UPGRADE in chosen and number % _UPGRADED_EVERY == 0:
            names = [UPGRADE]
        else:
            if not turn:
                turn = [name for name in chosen if name != UPGRADE]
                random.shuffle(turn)
            names = [turn.pop()]
        for _ in range(random.choice(_MORE)):
            taken = frozenset[str]().union(*(chosen[name].needs for name in names))
            free = [name for name in chosen if not chosen[name].needs & taken]
            names += [random.choice(free)] if free else []
        yield [
            Step(name, random.uniform(0, _APART_S), random.uniform(1, _LONGEST_S), random.random()) for name in names
        ]
