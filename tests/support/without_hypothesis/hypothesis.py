"""Hides Hypothesis from the processes that tests start: kio imports it where it is installed, which takes 0.8 s."""

raise ImportError("hypothesis is hidden")
