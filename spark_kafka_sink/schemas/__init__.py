"""Columns of rows into values with a schema: Avro, Protobuf and JSON Schema, with or without a registry.

``formats`` implements ``keyFormat`` and ``valueFormat``, ``encoding`` has the encoders over columns (no I/O), and
``registry`` is the client of a schema registry.
"""
