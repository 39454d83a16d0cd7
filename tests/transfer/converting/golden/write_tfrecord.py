"""Write the golden TFRecord files with TensorFlow 2.21: `python write_tfrecord.py tfrecord/`."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

JPEG = b"\xff\xd8\xff\xe0pixels\xff\xd9"


def feature(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(n: int) -> Any:
    values = {
        "image/encoded": JPEG + bytes([n]),
        "image/class/text": f"class {n} ß".encode(),
        "label": n - 1,
        "scores": [n / 2, -1.5, 1e30],
        "boxes": [0.25 * k for k in range(n % 3 * 4)],
        "ids": [n * 3**k for k in range(n + 1)],
        "raw": bytes([n, 0, 255]),
        "tags": [b"a"] * (n % 3),
        "rare": [-n] if n % 4 == 0 else [],
    }
    features = {name: feature(value) for name, value in values.items() if value != []}
    return tf.train.Example(features=tf.train.Features(feature=features))


def main(folder: str) -> None:
    for kind in ("", "GZIP", "ZLIB"):
        options = tf.io.TFRecordOptions(compression_type=kind)
        with tf.io.TFRecordWriter(f"{folder}/{kind.lower() or 'plain'}.tfrecord", options) as out:
            for n in range(10):
                out.write(example(n).SerializeToString())
    with tf.io.TFRecordWriter(f"{folder}/sequence.tfrecord") as out:
        message = tf.train.SequenceExample()
        message.context.feature["length"].int64_list.value.append(2)
        for _ in range(2):
            message.feature_lists.feature_list["frames"].feature.add().bytes_list.value.append(b"frame")
        out.write(message.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])
