"""One function per API, in a file with its kin. Its docstring says what it emulates; ``emulation`` lists what is
missing. ``table.py`` maps names to functions.
"""
