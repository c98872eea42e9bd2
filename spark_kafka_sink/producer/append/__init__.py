"""Rows into the accumulator, on the caller's thread."""
