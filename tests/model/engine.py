"""A breadth-first search over every state a set of rules can reach. It knows nothing of what the states mean.

States are hashable values (tuples). Breadth first, so the first history found that breaks a promise is a shortest one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Step = tuple[str, str, State]  # the rule's name, what it did this time, the state it leads to


class TooManyStatesError(Exception):
    """The bounds are larger than whoever asked was ready to wait for."""


@dataclass(frozen=True)
class Question(Generic[State]):
    """What to explore, and what must hold.

    ``broken`` is asked of every state, ``unfinished`` of those that nothing follows; both answer a sentence or None.
    """

    start: State
    steps: Callable[[State], Iterable[Step[State]]]
    broken: Callable[[State], str | None]
    unfinished: Callable[[State], str | None]


@dataclass
class Answer:
    """What was found. ``history`` is empty when every promise holds; ``fired`` counts the steps of each rule."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    verdict: str | None = None
    history: list[str] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        size = f"{self.states:,} states, {self.steps:,} steps, {self.depth} deep"
        if self.verdict is None:
            return f"every promise holds ({size})"
        numbered = (f"  {number:2} {what}" for number, what in enumerate(self.history, 1))
        return "\n".join([f"BROKEN: {self.verdict} ({size})", *numbered])


def explore(question: Question[State], most: int | None = None) -> Answer:
    """Look at every reachable state, or stop at the first that breaks a promise.

    Raises TooManyStatesError beyond ``most`` states: an exploration that was cut short must not look like a proof.
    """
    came_from: dict[State, State | None] = {question.start: None}
    answer = Answer()
    layer = [question.start]
    while layer:
        following: list[State] = []
        for state in layer:
            ends = True
            for rule, _, after in question.steps(state):
                ends = False
                answer.fired[rule] += 1
                if after in came_from:
                    continue
                came_from[after] = state
                if verdict := question.broken(after):
                    return _counterexample(question, came_from, after, answer, verdict)
                following.append(after)
            if ends and (verdict := question.unfinished(state)):
                return _counterexample(question, came_from, state, answer, verdict)
        if most is not None and len(came_from) > most:
            raise TooManyStatesError(f"more than {most:,} states at depth {answer.depth}")
        answer.depth += bool(following)
        layer = following
    _count(answer, came_from)
    return answer


def _count(answer: Answer, came_from: dict[State, State | None]) -> None:
    answer.states = len(came_from)
    answer.steps = answer.fired.total()


def _counterexample(
    question: Question[State], came_from: dict[State, State | None], last: State, answer: Answer, verdict: str
) -> Answer:
    """The steps are not kept while exploring: they are asked for again along the one way that matters."""
    way = [last]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    way.reverse()
    for state, after in itertools.pairwise(way):
        answer.history.append(next(what for _, what, reached in question.steps(state) if reached == after))
    answer.verdict = verdict
    _count(answer, came_from)
    return answer
