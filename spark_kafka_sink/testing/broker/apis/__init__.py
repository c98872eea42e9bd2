"""One function per API, in a file with related APIs. The function's docstring says what it emulates; ``emulation``
lists what is missing. ``table.py`` maps names to functions.
"""
