"""What happens in each round: drawn from the seed alone, so that a run can be repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.soak import network_troubles, troubles
from tests.soak.troubles import Victim, pick

_TOGETHER = (1, 2, 2, 3)
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


@dataclass(frozen=True)
class Trouble:
    """``needs``: what it has to itself; two that need the same do not happen together. ``weight``: how often it is
    drawn. ``every``: it begins each round whose number is a multiple of that; 0: it takes its turn with the others."""

    act: Callable[[Victim, Step], None]
    needs: frozenset[str]
    weight: int = 1
    every: int = 0


def _table(*rows: tuple[Callable[[Victim, Step], None], str, int]) -> dict[str, Trouble]:
    return {
        act.__name__.replace("_", " "): Trouble(act, frozenset(needs.split()), weight) for act, needs, weight in rows
    }


TROUBLES: Mapping[str, Trouble] = {
    **_table(
        (troubles.broker_killed, "brokers", 2),
        (troubles.broker_stopped, "brokers", 2),
        (troubles.majority_stopped, "brokers", 1),
        (troubles.too_few_in_sync, "brokers", 1),
        (troubles.broker_restarted, "brokers", 1),
        (troubles.election_inside_planning, "brokers point", 2),
        (troubles.election_inside_commit, "brokers point", 3),
        (troubles.driver_killed, "driver", 2),
        (troubles.driver_terminated, "driver", 2),
        (troubles.driver_stopped, "driver", 1),
        (troubles.driver_replaced, "driver point", 2),
        (troubles.query_stopped, "driver point query", 2),
        (troubles.killed_at_a_point, "point", 2),
        (troubles.executor_killed, "executors", 1),
        (troubles.executor_stopped, "executors", 1),
        (troubles.worker_killed, "workers", 1),
        (troubles.workers_outlive_the_driver, "driver executors workers point", 2),
        (troubles.transaction_protocol_changed, "protocol", 2),
        (network_troubles.cut_off_from_a_broker, "network", 2),
        (network_troubles.cut_off_from_all_brokers, "network", 1),
        (network_troubles.connections_fall_silent, "network", 2),
        (network_troubles.requests_arrive_late, "network", 3),
        (network_troubles.responses_arrive_late, "network", 2),
        (network_troubles.network_is_slow, "network", 1),
        (network_troubles.response_lost, "network", 3),
        (network_troubles.request_delivered_late, "network transactions", 3),
        (network_troubles.produce_delivered_late, "network", 3),
        (network_troubles.brokers_parted, "brokers", 2),
        (network_troubles.brokers_parted_on_one_side, "brokers", 2),
    ),
    # Or a run would end before all brokers are upgraded.
    "broker upgraded": Trouble(troubles.broker_upgraded, frozenset({"brokers"}), every=3),
}
_OF_WORKLOADS = frozenset({"executors", "point", "query", "transactions", "workers"})


def troubles_for(having: Sequence[frozenset[str]], *, upgrades: bool) -> dict[str, Trouble]:
    """Those that a run can do. ``having``: what each of its workloads has."""
    return {
        name: each
        for name, each in TROUBLES.items()
        if (upgrades or not each.every) and any(_fits(has, each) for has in having)
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
    number = 1
    while time.monotonic() < until:
        yield random_round(seed, number, chosen)
        number += 1


def random_round(seed: int, number: int, chosen: Mapping[str, Trouble]) -> Round:
    """Up to three troubles that go together.

    The first one is taken from all of them in turn, so that none is missing in as many rounds as there are troubles,
    except for one that begins every so many rounds. The others are drawn by their weights.
    """
    random = Random(f"{seed}/{number}")
    count = random.choice(_TOGETHER)
    names = [_first(seed, number, chosen)]
    taken = set(chosen[names[0]].needs)
    while len(names) < count:
        free = [name for name, trouble in chosen.items() if not trouble.needs & taken]
        if not free:
            break
        names += random.choices(free, [chosen[name].weight for name in free])
        taken |= chosen[names[-1]].needs
    return [Step(name, random.uniform(0, _APART_S), random.uniform(1, _LONGEST_S), random.random()) for name in names]


def _first(seed: int, number: int, chosen: Mapping[str, Trouble]) -> str:
    """Each turn of all names has an order of its own. What begins every so many rounds takes nobody's turn."""
    before = number - 1
    for name, trouble in chosen.items():
        if trouble.every:
            if number % trouble.every == 0:
                return name
            before -= number // trouble.every
    names = [name for name, trouble in chosen.items() if not trouble.every]
    turn, place = divmod(before, len(names))
    Random(f"{seed}/turn {turn}").shuffle(names)
    return names[place]
