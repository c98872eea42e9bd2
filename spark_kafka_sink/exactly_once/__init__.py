"""Exactly-once writes: prepared transactions, the intent that decides them, and the ledger that records it.

Knows Kafka, not Spark. ``plan``, ``task``, ``commit`` and ``abort`` are the four processes of a write; ``decisions``
has their tables, ``values`` crosses between them.
"""
