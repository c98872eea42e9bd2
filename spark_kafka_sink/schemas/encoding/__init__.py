"""Arrow columns → Avro and Protobuf, all rows at once. No I/O, no registry.

``encode_avro`` and ``encode_protobuf`` are public.
"""
