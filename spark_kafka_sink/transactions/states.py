"""The states of a transactional producer and every way from one to the next (Kafka: ``TransactionManager.State``).

``TRANSITIONS`` is the whole of it: a step that is not in the table is refused. ``PREPARED`` is what Kafka's own client
lacks: everything is in the log, the transaction is open, and any process that knows its identity may end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class State(Enum):
    """The value completes the sentence "The producer …"."""

    UNINITIALIZED = "has no producer id yet: call init_transactions() first"
    INITIALIZING = "is waiting for its producer id"
    READY = "has no transaction open: call begin_transaction() first"
    IN_TRANSACTION = "has a transaction open"
    PREPARING = "is preparing its transaction"
    PREPARED = "has prepared its transaction: commit it, abort it, or leave it open (close(), another transactional_id)"
    COMMITTING = "is committing its transaction"
    ENDING = "is committing its transaction: EndTxn is sent"
    ABORTING = "is aborting its transaction"
    ABORTABLE_ERROR = "has a failed transaction: call abort_transaction()"
    FATAL_ERROR = "has failed for good: close it"


class Step(Enum):
    """What moves a producer: its user's calls, named by their value, and what happens by itself."""

    INIT = "init_transactions()"
    INIT_AS = "init_transactions(transactional_id=…)"
    ADOPT = "adopt()"
    BEGIN = "begin_transaction()"
    SEND_OFFSETS = "send_offsets_to_transaction()"
    PREPARE = "prepare_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"
    INITIALIZED = "the coordinator gave a producer id and epoch"
    FLUSHED = "every batch of a transaction being prepared or committed is in the log"
    ENDED = "the coordinator has committed or aborted"
    BUMP = "the abort is done, and sequence numbers were lost: the next transaction needs a new epoch"
    FAIL = "a batch or a call failed: this transaction cannot be committed any more"
    REFUSED = "the coordinator does not commit: this transaction can only be aborted"
    BREAK = "an error that no abort mends: fenced, not authorized, not supported"


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = MappingProxyType(
    {
        (State.UNINITIALIZED, Step.INIT): State.INITIALIZING,
        (State.UNINITIALIZED, Step.INIT_AS): State.INITIALIZING,
        (State.UNINITIALIZED, Step.ADOPT): State.READY,
        (State.INITIALIZING, Step.INITIALIZED): State.READY,
        (State.READY, Step.INIT_AS): State.INITIALIZING,
        (State.READY, Step.BEGIN): State.IN_TRANSACTION,
        (State.IN_TRANSACTION, Step.SEND_OFFSETS): State.IN_TRANSACTION,
        (State.IN_TRANSACTION, Step.PREPARE): State.PREPARING,
        (State.IN_TRANSACTION, Step.COMMIT): State.COMMITTING,
        (State.IN_TRANSACTION, Step.ABORT): State.ABORTING,
        (State.IN_TRANSACTION, Step.FAIL): State.ABORTABLE_ERROR,
        (State.PREPARING, Step.FLUSHED): State.PREPARED,
        (State.PREPARING, Step.ABORT): State.ABORTING,
        (State.PREPARING, Step.FAIL): State.ABORTABLE_ERROR,
        (State.PREPARED, Step.COMMIT): State.COMMITTING,
        (State.PREPARED, Step.ABORT): State.ABORTING,
        # Everything of it is in the log and acknowledged: the producer has nothing more to do with it.
        (State.PREPARED, Step.INIT_AS): State.INITIALIZING,
        # Nothing was written: there is nothing to ask of the coordinator.
        (State.COMMITTING, Step.ENDED): State.READY,
        (State.COMMITTING, Step.FAIL): State.ABORTABLE_ERROR,
        (State.COMMITTING, Step.FLUSHED): State.ENDING,
        (State.ENDING, Step.ENDED): State.READY,
        (State.ENDING, Step.REFUSED): State.ABORTABLE_ERROR,
        # Rows that are lost now were appended too late to be of this transaction.
        (State.ENDING, Step.FAIL): State.ENDING,
        (State.ABORTING, Step.ENDED): State.READY,
        (State.ABORTING, Step.BUMP): State.INITIALIZING,
        # A batch that fails while its transaction is being aborted changes nothing.
        (State.ABORTING, Step.FAIL): State.ABORTING,
        (State.ABORTABLE_ERROR, Step.ABORT): State.ABORTING,
        (State.ABORTABLE_ERROR, Step.FAIL): State.ABORTABLE_ERROR,
        (State.UNINITIALIZED, Step.BREAK): State.FATAL_ERROR,
        (State.INITIALIZING, Step.BREAK): State.FATAL_ERROR,
        (State.READY, Step.BREAK): State.FATAL_ERROR,
        (State.IN_TRANSACTION, Step.BREAK): State.FATAL_ERROR,
        (State.PREPARING, Step.BREAK): State.FATAL_ERROR,
        (State.PREPARED, Step.BREAK): State.FATAL_ERROR,
        (State.COMMITTING, Step.BREAK): State.FATAL_ERROR,
        (State.ENDING, Step.BREAK): State.FATAL_ERROR,
        (State.ABORTING, Step.BREAK): State.FATAL_ERROR,
        (State.ABORTABLE_ERROR, Step.BREAK): State.FATAL_ERROR,
        (State.FATAL_ERROR, Step.BREAK): State.FATAL_ERROR,
    }
)

SENDING: Final = frozenset({State.IN_TRANSACTION, State.PREPARING, State.COMMITTING})
"""States in which batches go out. In every other one they belong to no transaction and fail."""

FLUSHING: Final = frozenset({State.PREPARING, State.COMMITTING, State.ABORTING})
"""States that wait until no batch is incomplete; nothing lingers in them."""
