"""Columns of rows into values with a schema: Avro, Protobuf and JSON Schema, with or without a registry.

``formats`` is what ``keyFormat`` and ``valueFormat`` ask for, ``encoding`` the encoders over columns (no I/O),
``registry`` the client of a schema registry.
"""
