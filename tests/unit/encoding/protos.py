"""protoc, and upb's messages of what it makes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc_tools
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from grpc_tools import protoc

from spark_kafka_sink import encode_protobuf
from spark_kafka_sink.schemas.encoding.descriptors import message_descriptor
from spark_kafka_sink.schemas.encoding.encoder import UnencodableRowsError

LIBRARY = Path(grpc_tools.__file__).parent / "_proto"


def compiled(*bodies: str, imports: bool = True, **files: str) -> bytes:
    """The descriptor set of ``a.proto`` (the bodies) or of files by name (``b`` is ``b.proto``)."""
    if bodies:
        files["a"] = "\n".join(bodies)
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, f"{name}.proto").write_text(text)
        output = Path(folder, "set")
        arguments = ["protoc", f"-I{folder}", f"-I{LIBRARY}", f"--descriptor_set_out={output}"]
        arguments += ["--include_imports"] * imports
        assert protoc.main([*arguments, *(f"{name}.proto" for name in files)]) == 0
        return output.read_bytes()


def proto3(body: str) -> bytes:
    """A descriptor set with these messages; the well-known types may be used."""
    imports = "".join(f'import "google/protobuf/{name}.proto";\n' for name in ("duration", "timestamp", "wrappers"))
    return compiled(f'syntax = "proto3";\n{imports}{body}', imports=False)


def proto2(body: str) -> bytes:
    return compiled(f'syntax = "proto2";\n{body}')


def upb(descriptor_set: bytes, message: str = "M") -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(message_descriptor(descriptor_set, message))


def files_of(descriptor_set: bytes) -> list[descriptor_pb2.FileDescriptorProto]:
    return list(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file)


def struct(**fields: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))


def faults(array: pa.Array, descriptor_set: bytes) -> list[tuple[int, str, str]]:
    with pytest.raises(UnencodableRowsError) as raised:
        encode_protobuf(array, descriptor_set, "M")
    return [tuple(fault) for fault in raised.value.faults]
