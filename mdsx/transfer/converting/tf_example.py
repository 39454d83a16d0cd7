"""Parse tf.train.Example, the message in the records of TFRecord files: a map of feature names to lists of values.

protobuf parses it, from a descriptor that is made here, so TensorFlow is not needed:

    Example       1: Features
    Features      1: map of names to Feature
    Feature       one of 1: BytesList, 2: FloatList, 3: Int64List
    BytesList     1: repeated bytes
    FloatList     1: repeated float, packed or not
    Int64List     1: repeated int64, packed or not

Unknown fields are ignored, the last entry with a name counts, and lists that occur twice in a Feature are joined. A
Feature without a list counts as absent.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError

Values: TypeAlias = "list[Any] | NDArray[Any]"
Feature: TypeAlias = tuple[str, Values]
"""The kind of a feature's values, "bytes", "float32" or "int64", and the values."""

_MOST_FEATURES = 2**16  # in an Example
_FEW = 16  # up to this many numbers, a list is faster than an array


class BadMessage(ValueError):
    """The bytes are not an Example message."""


class SequenceExample(BadMessage):
    """The message is a tf.train.SequenceExample, which has lists of features."""


def parse_example(data: bytes) -> dict[str, Feature]:
    """Return the features of an Example by name. Raise BadMessage."""
    kind, errors = message_class()
    try:
        example = kind.FromString(data)
    except errors as error:
        raise BadMessage(f"protobuf cannot parse it: {error}") from None
    if example.lists:
        raise SequenceExample("it is a SequenceExample, which has lists of features")
    features = example.features.feature
    if len(features) > _MOST_FEATURES:
        raise BadMessage(f"it has more than {_MOST_FEATURES:,} features")
    return {name: (chosen, _values(chosen, getattr(feature, chosen).value))
            for name, feature in features.items() if (chosen := feature.WhichOneof("kind"))}  # fmt: skip


def _values(kind: str, found: Any) -> Values:
    return list(found) if kind == "bytes" or len(found) <= _FEW else np.array(found, kind)


@cache
def message_class() -> tuple[Any, type[Exception]]:
    """Return protobuf's class for Example, with a field `lists` that detects a SequenceExample, and protobuf's error.

    Raise UsageError without protobuf.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    except ImportError as error:
        raise UsageError("TFRecord files need the package protobuf", hint="pip install 'mdsx[tfrecord]'") from error
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="mdsx_example.proto", package="tfrecord", syntax="proto3")

    def add(name: str, *fields: tuple[str, object], repeated: bool = False, within: Any = file.message_type) -> Any:
        made = within.add(name=name)
        label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
        for number, (field, kind) in enumerate(fields, 1):
            named = (
                {"type_name": f".tfrecord.{kind}", "type": types.TYPE_MESSAGE}
                if isinstance(kind, str)
                else {"type": kind}
            )
            made.field.add(name=field, number=number, label=label, **named)
        return made

    add("BytesList", ("value", types.TYPE_BYTES), repeated=True)
    add("FloatList", ("value", types.TYPE_FLOAT), repeated=True)
    add("Int64List", ("value", types.TYPE_INT64), repeated=True)
    feature = add("Feature", ("bytes", "BytesList"), ("float32", "FloatList"), ("int64", "Int64List"))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = add("Features", ("feature", "Features.FeatureEntry"), repeated=True)
    entry = add("FeatureEntry", ("key", types.TYPE_STRING), ("value", "Feature"), within=features.nested_type)
    entry.options.map_entry = True
    add("Example", ("features", "Features"), ("lists", types.TYPE_BYTES))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfrecord.Example")), message.DecodeError
