"""The search itself, on puzzles whose answers are known."""

from tests.model.engine import Question, explore


def jugs(state):
    """Two jugs of 3 and 5 litres: fill, empty, pour."""
    small, large = state
    to_large, to_small = min(small, 5 - large), min(large, 3 - small)
    yield "fill", "fill the small one", (3, large)
    yield "fill", "fill the large one", (small, 5)
    yield "empty", "empty the small one", (0, large)
    yield "empty", "empty the large one", (small, 0)
    yield "pour", "pour into the large one", (small - to_large, large + to_large)
    yield "pour", "pour into the small one", (small + to_small, large - to_small)


def counting(state):
    if state < 3:
        yield "count", f"count to {state + 1}", state + 1


def nothing(state):
    return None


def test_a_shortest_history_is_found():
    answer = explore(Question((0, 0), jugs, lambda state: "four litres" if state[1] == 4 else None, nothing))
    assert (answer.verdict, len(answer.history)) == ("four litres", 6)
    assert answer.history[:3] == ["fill the large one", "pour into the small one", "empty the small one"]


def test_every_reachable_state_is_seen_once():
    answer = explore(Question((0, 0), jugs, lambda state: "five litres" if state[0] == 5 else None, nothing))
    assert answer.verdict is None
    assert answer.states == 16
    assert answer.steps == 16 * 6
    assert answer.fired == {"fill": 32, "empty": 32, "pour": 32}
    assert str(answer).startswith("every promise holds (16 states, 96 steps")


def test_a_state_that_nothing_follows_is_asked_whether_it_is_finished():
    answer = explore(Question(0, counting, nothing, lambda state: f"stuck at {state}"))
    assert answer.verdict == "stuck at 3"
    assert answer.history == ["count to 1", "count to 2", "count to 3"]
    assert str(answer).splitlines()[0] == "BROKEN: stuck at 3 (4 states, 3 steps, 3 deep)"
