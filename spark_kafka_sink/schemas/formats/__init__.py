"""``keyFormat`` and ``valueFormat``: columns of rows become values in the registry's wire format."""
