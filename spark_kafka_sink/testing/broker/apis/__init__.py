"""One file per API: its header says what it emulates and what not. ``table.py`` joins them to their names."""
