"""What the texts of errors say about the decision, word for word."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.errors import ADVICE, Progress
from tests.soak.claims import (
    DECIDED,
    DENIALS,
    DENIED,
    NONE,
    OF_LEDGER,
    OF_SINK,
    UNKNOWN,
    claim_of,
)

SOURCE = Path(__file__).parents[2] / "spark_kafka_sink"

# As histories of two hours have them, without the middle.
_STILL_OPEN = (
    "Batch 0 of once-83bf (name once-83bf) is decided, but 4 of its 4 transactions could not be committed yet: EndTxn "
    "for once-83bf-0.352 has no response after 6000 ms: No broker has responded. Transactions by task: 0-3: open."
)
_NO_MARKER = (
    "Batch 455 of oldest (name txn-oldest) is decided, but the ledger does not say whether the rows of task 2 are "
    "committed: __pykafka_ledger-14 does not say yet what became of the transaction marked at offset 4315 or behind"
)
_FENCED = (
    "txnVersion 80 of txnAppId pairs-two (name txn-pairs-two) is not committed by this run: Another driver has fenced "
    "txn-pairs-two-driver: a restarted run of this query, or a second query under the same transactionalIdPrefix. "
    "Start the query again: foreachBatch gets the batch again, and writes it. What the other run has committed is not "
    "written again."
)
_REFUSED = (
    "once-1b3e is not committed: Produce of __pykafka_ledger-8: TRANSACTIONAL_ID_AUTHORIZATION_FAILED; the principal "
    "needs WRITE. Run the job again (in foreachBatch, start the query again): it writes the rows again."
)
_DIED = (
    "An error occurred while calling o1008.save. : org.apache.spark.SparkException: Python worker exited unexpectedly "
    "(crashed). Consider setting 'spark.python.worker.faulthandler.enabled' to 'true' for the better Python traceback. "
    "at org.apache.spark.sql.execution.python.PythonPlannerRunner.runInPython(PythonPlannerRunner.scala:162) at "
    "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource."
)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (_STILL_OPEN, DECIDED),
        (_NO_MARKER, DECIDED),
        ("write aborted, but batch 455 of oldest had been decided and is committed", DECIDED),
        ("job may or may not be decided, because no broker confirms it: timeout. write aborted, but x", UNKNOWN),
        (_DIED + "commitWriteInPython(UserDefinedPythonDataSource.scala:134)", UNKNOWN),
        ("Answer from Java side is empty", UNKNOWN),
        ("[Errno 111] Connection refused", UNKNOWN),
        (_FENCED, DENIED),
        (_REFUSED, DENIED),
        (f"{_REFUSED} write aborted, but batch job once-1b3e had been decided and is committed", DENIED),
        (f"{_REFUSED} Answer from Java side is empty", DENIED),
        ("[Errno 111] Connection refused. Start the query again: it writes the batch again.", DENIED),
        ("write aborted; no more of its rows become visible: 1 prepared transactions aborted", NONE),
        (_DIED + "createWriteInfoInPython(UserDefinedPythonDataSource.scala:123)", NONE),
        ("write aborted; none of its rows is visible: 4 prepared transactions aborted", DENIED),
        ("Batch 3 is older than the last batch in the ledger: batch 5 was committed. Restore the latest one.", NONE),
        # They end tasks, before anything is decided.
        ("Job aborted due to stage failure: Python worker exited unexpectedly (crashed): java.io.EOFException", NONE),
        ("Job 7 cancelled because SparkContext was shut down", NONE),
        # A broker's.
        ("no broker responds: 127.0.0.1:9092: [Errno 111] Connection refused", NONE),
    ],
)
def test_what_an_error_claims_about_the_decision(text, claim):
    assert claim_of(text) == claim


@pytest.mark.parametrize(
    ("text", "entry", "another"),
    [
        (_STILL_OPEN, "once-83bf/0", "once-83b/0"),
        (_NO_MARKER, "oldest/455", "oldest/45"),
        ("write aborted, but batch 455 of oldest had been decided and is committed", "oldest/455", "oldest/456"),
        ("write aborted, but batch job once-1 was committed before", "once-1/0", "once/0"),
        ("write aborted, but batch 4 of one was committed by another run, and batch 5 of two is new", "one/4", "two/5"),
        (
            "micro-batch 7 of query 6be9 (name q) may or may not be decided, because no broker confirms it",
            "6be9/7",
            "q/7",
        ),
        ("txnVersion 7 of txnAppId app (name q) is decided, but the transactions of task 3 are gone", "app/7", "app/8"),
        (
            "batch job j (name j, ledgerTopic l) lost the rows of task 1 in Kafka. The other tasks' rows are "
            "committed; rewrite the missing ones by hand, then accept the loss with `x`",
            "j/0",
            "k/0",
        ),
    ],
)
def test_an_error_claims_it_of_the_write_that_it_names(text, entry, another):
    assert claim_of(text, [another]) == NONE
    assert claim_of(text, [another, entry]) == claim_of(text) != NONE


def test_a_process_that_died_claims_it_of_any_write():
    assert claim_of("Answer from Java side is empty", []) == UNKNOWN


_SPEAKS_OF_A_DECISION = re.compile("(is|was|be|been) decided|was committed|is committed with|overtaken")

_NO_CLAIM = {
    "reads whether ": "advice, which says that the next run finds out",
    "is decided and not committed yet": "the command line's, which is no error of a write",
    "no longer exists: the rows that were written to it are lost": "a line of the log, beside a verdict of committed",
    "was committed before; nothing written": "a line of the log, beside a verdict of committed",
    "is older than the last batch": "another batch was committed",
    "does not follow the ledger": "another batch was committed",
    "is smaller than the last one": "another version was committed",
    "is committed with ": "an earlier run wrote what is visible; nothing that this run wrote may be",
}
"""Sentences of the sink that speak of a decision and are not in the table, by words of theirs, with the reason."""


def sentences():
    """The texts of the sink's source, each as a whole, with "{}" for what is filled in."""
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        nodes = list(ast.walk(tree))
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if id(node) in parts | documentation:
                continue
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_words_of_the_sink_are_in_its_source():
    """So that an error that is worded anew is found, and not taken for one that says nothing."""
    source = "\n".join(sentences())
    phrases = [phrase for saying in (*OF_SINK, *OF_LEDGER, *DENIALS) for phrase in saying.phrases]
    assert [phrase for phrase in phrases if phrase not in source] == []


def test_each_sentence_of_the_sink_about_a_decision_is_in_the_table():
    """Or says nothing about the decision of the write whose error it is. A new sentence must be put into one of them,
    because an error that the table lacks counts as a promise that nothing is visible."""
    speak = [text for text in sentences() if _SPEAKS_OF_A_DECISION.search(text)]
    in_one_sentence = [
        [phrase for phrase in saying.phrases if phrase != "write aborted, but "] for saying in (*OF_SINK, *OF_LEDGER)
    ]
    known = [*in_one_sentence, *([words] for words in _NO_CLAIM)]
    assert [text for text in speak if not any(all(words in text for words in each) for each in known)] == []
    assert [words for words in _NO_CLAIM if not any(words in text for text in speak)] == []


def test_the_advice_of_a_write_without_a_visible_row_denies_the_decision_and_no_other_does():
    none_visible = (Progress.NOT_DECIDED, Progress.ALL_LOST)
    claims = {(who, progress): claim_of(text) for (who, progress), text in ADVICE.items()}
    assert claims == {key: DENIED if key[1] in none_visible else NONE for key in ADVICE}
