"""``make demo``: the sink shown on this machine."""
