"""Exactly-once: prepared transactions, the intent that decides over them, and the ledger that remembers it.

Knows Kafka but not Spark: values come in, decisions and values go out. ``values`` are what crosses processes;
``decisions`` (tables, no I/O) say what each process has to do; ``format`` and ``ledger_view`` are the ledger's records
and what they add up to; ``checksum`` tells replayed rows from others. ``cluster``, ``ledger_topic`` and ``ledger`` are
the inline conversation with the brokers, ``planning``, ``task``, ``committing`` and ``aborting`` the four kinds of
process, ``finishing`` what three of them share. ``fault_points`` lets tests end a process where it hurts.
"""
