"""Files of Chakra execution traces: the schema, built in code, and the messages of a file, checked.

A file is a `GlobalMetadata` and then `Node` messages, each after its length as a varint. Names and numbers of fields
are those of the public schema: FOUND (mlcommons/chakra, schema/protobuf/et_def.proto at 21585d8f; its licence is Apache
2.0). Parts that this file does not name (lists as values, input and output tensors, storage) are unknown fields to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from paceline.algorithms.core.errors import InputError

VERSION = "0.0.4"
"""of the schema in `GlobalMetadata`: FOUND (astra-sim, examples/workload/microbenchmarks/generator_scripts)"""
PACKAGE = "ChakraProtoMsg"
NODE_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
COLLECTIVES = {"AllReduce": 0, "Reduce": 1, "AllGather": 2, "Broadcast": 5, "Barrier": 9}
"""the numbers of `CollectiveCommType`, by our names of operations"""
VALUES = {"double_val": 3, "float_val": 5, "int32_val": 7, "int64_val": 9, "uint32_val": 11, "uint64_val": 13,
          "bool_val": 27, "string_val": 29}  # fmt: skip
"""the numbers of the fields of `AttributeProto.value`; a type is the name without its end"""
NODE_FIELDS = (
    ("id", 1, "uint64"), ("name", 2, "string"), ("type", 3, "int32"), ("*ctrl_deps", 4, "uint64"),
    ("*data_deps", 5, "uint64"), ("start_time_micros", 6, "uint64"), ("duration_micros", 7, "uint64"),
    ("*attr", 10, "AttributeProto"),
)  # fmt: skip
"""name, number and type, ``*`` before the name of a repeated field; enums are read as their numbers"""


class Classes(NamedTuple):
    """The classes of the messages."""

    metadata: Any
    node: Any
    attribute: Any


class ExecutionTrace(NamedTuple):
    """The content of a file.

    Args:
        version: that of the schema.
        nodes: messages of the class `Node`.
    """

    version: str
    nodes: tuple[Any, ...]


@cache
def classes() -> Classes:
    """Returns the classes of the schema's messages; raises `InputError` without the package protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise InputError(
            f"Chakra: found no package {error.name}; expected protobuf: pip install 'paceline[chakra]'"
        ) from None
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")

    def message(name: str, fields: Iterable[tuple[str, int, str]]) -> Any:
        made = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = kinds.LABEL_REPEATED if field[0] == "*" else kinds.LABEL_OPTIONAL
            added = made.field.add(name=field.lstrip("*"), number=number, label=label)
            if kind[0].isupper():
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
        return made

    attribute = message("AttributeProto", [("name", 1, "string"), ("doc_string", 2, "string")])
    attribute.oneof_decl.add(name="value")
    for field, number in VALUES.items():
        kind = getattr(kinds, f"TYPE_{field.removesuffix('_val').upper()}")
        attribute.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL, oneof_index=0)
    message("GlobalMetadata", [("version", 1, "string"), ("*attr", 2, "AttributeProto")])
    message("Node", NODE_FIELDS)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    return Classes(
        *(message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names)
    )


def write(path: Path, nodes: Iterable[Any]) -> None:
    """Writes a file.

    Args:
        path: the new file.
        nodes: messages of the class `Node`.
    """
    with path.open("wb") as file:
        for message in (classes().metadata(version=VERSION), *nodes):
            content = message.SerializeToString()
            file.write(_varint(len(content)) + content)


def _varint(number: int) -> bytes:
    """Returns a number in groups of seven bits, the lowest first.

    >>> _varint(300)
    b'\\xac\\x02'
    """
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def read(path: Path) -> ExecutionTrace:
    """Returns the content of a file.

    Args:
        path: the file, ``PREFIX.RANK.et``.

    Raises:
        InputError: it cannot be read, is cut off, has no nodes, or nodes that depend on missing ones. Control
            dependencies may be missing: PyTorch's converter removes nodes without others around them.
    """
    from google.protobuf.message import DecodeError

    made = classes()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    messages: list[Any] = []
    at = 0
    while at < len(content):
        size, begin = _size(content, at, path)
        if begin + size > len(content):
            raise InputError(
                f"{path}: found {len(content) - begin} of the {size} bytes of message {len(messages)}, the file is cut "
                "off; expected a complete execution trace of Chakra"
            )
        try:
            kind = made.node if messages else made.metadata
            messages.append(kind.FromString(content[begin : begin + size]))
        except DecodeError:
            raise _malformed(path, f"message {len(messages)}, which is not of its schema") from None
        at = begin + size
    if len(messages) < 2:
        raise _malformed(path, "no nodes")
    known = {node.id for node in messages[1:]}
    if len(known) < len(messages) - 1:
        raise _malformed(path, "several nodes with the same id")
    for node in messages[1:]:
        if missing := sorted({*node.data_deps} - known):
            raise _malformed(path, f"node {node.id} depending on node {missing[0]}, which is not there")
    return ExecutionTrace(messages[0].version, tuple(messages[1:]))


def _malformed(path: Path, what: str) -> InputError:
    return InputError(f"{path}: found {what}; expected an execution trace of Chakra (et_def.proto)")


def _size(content: bytes, at: int, path: Path) -> tuple[int, int]:
    """Returns the size of the message at a place, and where it begins."""
    size = 0
    for number, byte in enumerate(content[at : at + 5]):
        size |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return size, at + number + 1
    raise _malformed(path, f"no length of a message at byte {at}")


def attributes(node: Any) -> dict[str, Any]:
    """Returns the attributes of a node by name.

    Args:
        node: a message of the class `Node`.

    >>> made = classes()
    >>> attributes(made.node(attr=[made.attribute(name="comm_size", int64_val=8)]))
    {'comm_size': 8}
    """
    fields = ((attr.name, attr.WhichOneof("value"), attr) for attr in node.attr)
    return {name: getattr(attr, field) for name, field, attr in fields if field is not None}
