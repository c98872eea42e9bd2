"""The states of a transactional producer and all transitions (Java: ``TransactionManager.State``).

A step that ``TRANSITIONS`` does not have is refused. Java has no ``PREPARED``: all records are in the log, the
transaction is open, and any process that knows its identity may commit or abort it.
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
    """A call of the user (the value is its name) or an event."""

    INIT = "init_transactions()"
    INIT_AS = "init_transactions(transactional_id=…)"
    RESUME = "resume_transactions()"
    BEGIN = "begin_transaction()"
    SEND_OFFSETS = "send_offsets_to_transaction()"
    PREPARE = "prepare_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"
    INITIALIZED = "the coordinator granted a producer id and epoch"
    FLUSHED = "every batch of a transaction being prepared or committed is in the log"
    ENDED = "the coordinator has committed or aborted"
    BUMP = "the next transaction needs a new epoch: sequence numbers were lost, or an EndTxn may still arrive"
    FAIL = "a batch or a request failed: this transaction can only be aborted"
    REFUSED = "the coordinator refused the commit: this transaction can only be aborted"
    UNSENT = "InitProducerId or EndTxn could not be built: the call may be repeated"
    BREAK = "fatal error: fenced, not authorized, not supported"


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = MappingProxyType(
    {
        (State.UNINITIALIZED, Step.INIT): State.INITIALIZING,
        (State.UNINITIALIZED, Step.INIT_AS): State.INITIALIZING,
        (State.UNINITIALIZED, Step.RESUME): State.READY,
        (State.INITIALIZING, Step.INITIALIZED): State.READY,
        (State.INITIALIZING, Step.UNSENT): State.UNINITIALIZED,
        (State.READY, Step.INIT_AS): State.INITIALIZING,
        (State.READY, Step.BEGIN): State.IN_TRANSACTION,
        (State.READY, Step.BUMP): State.INITIALIZING,
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
        (State.PREPARED, Step.INIT_AS): State.INITIALIZING,
        (State.COMMITTING, Step.ENDED): State.READY,  # an empty transaction needs no EndTxn
        (State.COMMITTING, Step.FAIL): State.ABORTABLE_ERROR,
        (State.COMMITTING, Step.FLUSHED): State.ENDING,
        (State.ENDING, Step.ENDED): State.READY,
        (State.ENDING, Step.REFUSED): State.ABORTABLE_ERROR,
        (State.ENDING, Step.UNSENT): State.ABORTABLE_ERROR,
        (State.ENDING, Step.FAIL): State.ENDING,  # records appended too late for this transaction
        (State.ABORTING, Step.ENDED): State.READY,
        (State.ABORTING, Step.BUMP): State.INITIALIZING,
        (State.ABORTING, Step.FAIL): State.ABORTING,
        (State.ABORTING, Step.UNSENT): State.ABORTABLE_ERROR,
        (State.ABORTABLE_ERROR, Step.ABORT): State.ABORTING,
        (State.ABORTABLE_ERROR, Step.FAIL): State.ABORTABLE_ERROR,
        **{(state, Step.BREAK): State.FATAL_ERROR for state in State},
    }
)

SENDING: Final = frozenset({State.IN_TRANSACTION, State.PREPARING, State.COMMITTING})
"""States that send batches. In every other state batches fail."""

FLUSHING: Final = frozenset({State.PREPARING, State.COMMITTING, State.ABORTING})
"""States that wait until no batch is incomplete. No batch lingers."""
