"""The settings every fault is tried with: acks, max.in.flight, idempotence, codec, keys or none, both ways in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

RETRY_BACKOFF_MS = 10


class Guarantee(Enum):
    """What a setting makes of retries: the column of a fault's row that says what must be in the log."""

    IDEMPOTENT = "the broker knows a retry"
    ONE_IN_FLIGHT = "a retry may write rows again, nothing overtakes it"
    FIVE_IN_FLIGHT = "a retry may write rows again, and behind later ones"
    NO_ACKS = "nobody knows"


@dataclass(frozen=True)
class Setting:
    """One way to configure a producer and to write with it: ``send`` takes records, else columns are appended."""

    acks: str
    in_flight: int
    idempotent: bool
    codec: str
    keyed: bool
    send: bool

    @property
    def guarantee(self) -> Guarantee:
        if self.acks == "0":
            return Guarantee.NO_ACKS
        if self.idempotent:
            return Guarantee.IDEMPOTENT
        return Guarantee.ONE_IN_FLIGHT if self.in_flight == 1 else Guarantee.FIVE_IN_FLIGHT

    def config(self, servers: str) -> dict[str, object]:
        return {
            "bootstrap.servers": servers,
            "acks": self.acks,
            "max.in.flight.requests.per.connection": self.in_flight,
            "enable.idempotence": self.idempotent,
            "compression.type": self.codec,
            "batch.size": 500,
            "linger.ms": 1,
            "buffer.memory": 1 << 20,
            "retry.backoff.ms": RETRY_BACKOFF_MS,
            "reconnect.backoff.ms": RETRY_BACKOFF_MS,
            "max.block.ms": 20_000,
        }

    def __str__(self) -> str:
        words = [f"acks={self.acks}", f"{self.in_flight} in flight"]
        words += ["idempotent"] * self.idempotent
        words += [self.codec, "keys" if self.keyed else "no keys", "send" if self.send else "columns"]
        return " ".join(words)


SETTINGS = (
    #       acks  in flight  idempotent  codec  keys   send
    Setting("all", 5, True, "none", True, False),
    Setting("all", 5, True, "lz4", False, True),
    Setting("all", 1, True, "zstd", True, True),
    Setting("all", 1, False, "gzip", False, False),
    Setting("1", 1, False, "none", True, True),
    Setting("all", 5, False, "none", False, True),
    Setting("1", 5, False, "snappy", True, False),
    Setting("0", 5, False, "none", True, False),
    Setting("0", 1, False, "zstd", False, True),
)  # fmt: skip
