"""What happens in each round: drawn from the seed alone, so that a run, or one round of it, can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.faults.chaos.troubles import TROUBLES, Trouble

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


def random_round(seed: int, number: int, troubles: Mapping[str, Trouble[Any]] = TROUBLES) -> Round:
    """Up to three troubles that go together.

    The first one is taken from all of them in turn, so that none is missing in as many rounds as there are troubles,
    except for one that begins every so many rounds. The others are drawn by their weights.
    """
    random = Random(f"{seed}/{number}")
    count = random.choice(_TOGETHER)
    first = _first(seed, number, troubles)
    chosen, taken = [first], set(troubles[first].needs)
    while len(chosen) < count:
        free = [name for name, trouble in troubles.items() if not trouble.needs & taken]
        if not free:
            break
        (name,) = random.choices(free, [troubles[name].weight for name in free])
        chosen.append(name)
        taken |= troubles[name].needs
    return [_step(name, random) for name in chosen]


def _first(seed: int, number: int, troubles: Mapping[str, Trouble[Any]]) -> str:
    """Each turn of all names has an order of its own. What begins every so many rounds takes nobody's turn."""
    before = number - 1
    for name, trouble in troubles.items():
        if trouble.every:
            if number % trouble.every == 0:
                return name
            before -= number // trouble.every
    names = [name for name, trouble in troubles.items() if not trouble.every] or list(troubles)
    turn, place = divmod(before, len(names))
    Random(f"{seed}/turn {turn}").shuffle(names)
    return names[place]


def one_of_each(seed: int) -> list[Round]:
    """Every trouble once, two together where they go together."""
    random = Random(seed)
    left = list(TROUBLES)
    random.shuffle(left)
    rounds = []
    while left:
        first = left.pop(0)
        partner = next((name for name in left if not TROUBLES[name].needs & TROUBLES[first].needs), None)
        together = [first]
        if partner is not None:
            left.remove(partner)
            together.append(partner)
        rounds.append([_step(name, random) for name in together])
    return rounds


def _step(name: str, random: Random) -> Step:
    return Step(name, random.uniform(0, _APART_S), random.uniform(1, _LONGEST_S), random.random())
