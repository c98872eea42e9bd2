"""Record batch format v2 (KIP-98) over whole columns: pure functions, without state, clock or I/O."""
