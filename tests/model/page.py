"""What docs/exactly-once-model.md says of each exploration: who runs, and what may happen how often."""

from __future__ import annotations

from tests.model.scenario import Scenario

# Each budget of a scenario, as the page names one of it and several.
BUDGETS: dict[str, tuple[str, str]] = {
    "timeouts": ("timeout", "timeouts"),
    "retries": ("second attempt", "second attempts"),
    "late_inits": ("late InitProducerId", "late InitProducerIds"),
    "lost_answers": ("lost response", "lost responses"),
    "late_ends": ("late EndTxn", "late EndTxns"),
    "stale_reads": ("read that lags", "reads that lag"),
    "crashes": ("kill", "kills"),
    "failures": ("failing task", "failing tasks"),
    "late_rows": ("late Produce", "late Produces"),
    "ledger_losses": ("lost ledger", "lost ledgers"),
    "deletions": ("deleted topic", "deleted topics"),
    "restores": ("older checkpoint", "older checkpoints"),
}
_PROTOCOLS = {"v2": "", "v1": "transactions v1", "unverified": "before Kafka 3.6"}


def bounds_of(scenario: Scenario) -> str:
    """``2 runs, 2 tasks, 1 batch; aborts, 1 timeout``."""
    tasks = max(len(scenario.tasks(run)) for run in range(len(scenario.runs)))
    size = (len(scenario.runs), "run", "runs"), (tasks, "task", "tasks"), (scenario.batches, "batch", "batches")
    happens = [
        _PROTOCOLS[scenario.protocol],
        "one run after the other" if scenario.orderly else "",
        "aborts" if scenario.aborts else "",
        "mid-write" if scenario.mid_write else "",
        "the intent's deadline" if scenario.clock else "",
        *(_count(getattr(scenario, name), *words) for name, words in BUDGETS.items()),
    ]
    return "; ".join(filter(None, (", ".join(_count(*each) for each in size), ", ".join(filter(None, happens)))))


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}" if number else ""
