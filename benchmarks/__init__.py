"""How fast the sink is, next to others in the same session: ``python -m benchmarks --help``."""
