"""Encoders of Arrow columns as Avro and Protobuf, all rows at once, without I/O and without a registry.

``encode_avro`` and ``encode_protobuf`` are public.
"""
