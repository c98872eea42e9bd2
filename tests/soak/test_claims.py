"""What the texts of errors say about the decision, word for word."""

from __future__ import annotations

import pytest

from spark_kafka_sink.exactly_once.errors import ADVICE, Progress
from tests.repository.files import PACKAGE
from tests.repository.messages import texts_in
from tests.soak.claims import DECIDED, DENIALS, DENIED, NONE, OF_LEDGER, OF_SINK, UNKNOWN, claim_of

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
    "txnVersion 80 of txnAppId pairs-two (name pairs-two) is not committed by this run: Another driver has fenced "
    "pairs-two-driver: a newer run of this query or job, or another one of the same name. Unless a newer run "
    "continues: Run the job again (in foreachBatch, start the query again): it writes the batch again. What the other "
    "run has committed is not written again."
)
_REFUSED = (
    "once-1b3e is not committed: Produce of __pykafka_ledger-8: TRANSACTIONAL_ID_AUTHORIZATION_FAILED; the principal "
    "needs WRITE. Run the job again (in foreachBatch, start the query again): it writes the batch again."
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
        ("The write was aborted, but batch 455 of oldest had been decided and is committed", DECIDED),
        (
            "job may or may not be decided, because no broker confirms it: timeout. The write was aborted, but x",
            UNKNOWN,
        ),
        (_DIED + "commitWriteInPython(UserDefinedPythonDataSource.scala:134)", UNKNOWN),
        ("Answer from Java side is empty", UNKNOWN),
        ("[Errno 111] Connection refused", UNKNOWN),
        (_FENCED, DENIED),
        (_REFUSED, DENIED),
        (f"{_REFUSED} The write was aborted, but batch job once-1b3e had been decided and is committed", DENIED),
        (f"{_REFUSED} Answer from Java side is empty", DENIED),
        ("[Errno 111] Connection refused. Start the query again: it writes the batch again.", DENIED),
        ("The write was aborted, and no more of its rows become visible: 1 prepared transactions were aborted", NONE),
        (_DIED + "createWriteInfoInPython(UserDefinedPythonDataSource.scala:123)", NONE),
        ("The write was aborted, and none of its rows is visible: 4 prepared transactions were aborted", DENIED),
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
        (
            "The write was aborted, but batch 455 of oldest had been decided and is committed",
            "oldest/455",
            "oldest/456",
        ),
        ("The write was aborted, but batch job once-1 was committed before", "once-1/0", "once/0"),
        (
            "The write was aborted, but batch 4 of one was committed by another run, and batch 5 of two is new",
            "one/4",
            "two/5",
        ),
        (
            "micro-batch 7 of query 6be9 (name q) may or may not be decided, because no broker confirms it",
            "6be9/7",
            "q/7",
        ),
        ("txnVersion 7 of txnAppId app (name q) is decided, but the transactions of task 3 are gone", "app/7", "app/8"),
        (
            "batch job j (name j, ledgerTopic l) lost the rows of task 1 in Kafka. The other tasks' rows are "
            "committed: write the missing rows yourself, then accept the loss with `x`",
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


def test_the_words_of_the_sink_are_in_its_source():
    """So that an error that is worded anew is found, and not taken for one that says nothing."""
    source = "\n".join(texts_in(PACKAGE))
    words = [phrase for phrases in (*OF_SINK, *OF_LEDGER, *DENIALS) for phrase in phrases]
    assert [phrase for phrase in words if phrase not in source] == []


def test_the_advice_of_a_write_without_a_visible_row_denies_the_decision_and_no_other_does():
    none_visible = (Progress.NOT_DECIDED, Progress.ALL_LOST)
    claims = {(who, progress): claim_of(text) for (who, progress), text in ADVICE.items()}
    assert claims == {key: DENIED if key[1] in none_visible else NONE for key in ADVICE}
