"""TFRecord files for the tests: messages made by protobuf, and records framed byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGES = {"packed": True, "unpacked": False}


def _classes(package: str, packed: bool) -> Any:
    """Return the class Example as example.proto and feature.proto of TensorFlow define it, with packed lists or not."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")

    def message(name: str, *fields: tuple[str, int, Any, str | None, bool], inside: Any = None) -> Any:
        made = file.message_type.add(name=name) if inside is None else inside.nested_type.add(name=name)
        for field, number, kind, of, repeated in fields:
            added = made.field.add(name=field, number=number, type=kind)
            added.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            if of:
                added.type_name = f".{package}.{of}"
            if repeated and kind in (_FIELD.TYPE_FLOAT, _FIELD.TYPE_INT64):
                added.options.packed = packed
        return made

    message("BytesList", ("value", 1, _FIELD.TYPE_BYTES, None, True))
    message("FloatList", ("value", 1, _FIELD.TYPE_FLOAT, None, True))
    message("Int64List", ("value", 1, _FIELD.TYPE_INT64, None, True))
    lists = ("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")
    feature = message(
        "Feature", *((name, number, _FIELD.TYPE_MESSAGE, of, False) for number, (name, of) in enumerate(lists, 1))
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message("Features", ("feature", 1, _FIELD.TYPE_MESSAGE, "Features.FeatureEntry", True))
    text = ("key", 1, _FIELD.TYPE_STRING, None, False)
    entry = message("FeatureEntry", text, ("value", 2, _FIELD.TYPE_MESSAGE, "Feature", False), inside=features)
    entry.options.map_entry = True
    message("Example", ("features", 1, _FIELD.TYPE_MESSAGE, "Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Example"))


CLASSES = {name: _classes(name, packed) for name, packed in _PACKAGES.items()}

Value = bytes | float | int | list[bytes] | list[float] | list[int]


def example(features: Mapping[str, Value], package: str = "packed") -> bytes:
    """Return an Example: bytes, floats and integers, or lists of them that are not empty."""
    message = CLASSES[package]()
    for name, value in features.items():
        values: list[Any] = value if isinstance(value, list) else [value]
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
        getattr(message.features.feature[name], kind).value.extend(values)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _after_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_TABLE = [_after_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """Return the CRC32C, byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def records(samples: Iterable[Mapping[str, Value]]) -> bytes:
    return b"".join(record(example(sample)) for sample in samples)


def write(path: Path, samples: Iterable[Mapping[str, Value]]) -> Path:
    path.write_bytes(records(samples))
    return path
