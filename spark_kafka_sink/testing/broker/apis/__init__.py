"""One file per API: its docstring lists what it emulates and what not. ``table.py`` maps names to handlers."""
