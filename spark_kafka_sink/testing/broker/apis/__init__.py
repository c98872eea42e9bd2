"""One file per API: its docstring says what it emulates; ``emulation`` lists what is missing. ``table.py`` maps names
to handlers.
"""
