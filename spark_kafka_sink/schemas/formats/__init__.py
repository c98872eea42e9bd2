"""``keyFormat`` and ``valueFormat``: columns of rows → the registry's wire format."""
