"""Make a dataset of TFRecord files, without TensorFlow, and read it in batches.

    pip install 'mdsx[tfrecord]'
    python convert_tfrecord.py folder

The same conversion on the command line: `mdsx convert tfrecord 'folder/train-*.tfrecord' folder/pictures --num-workers
2 --rename image=image/encoded --rename label=image/class/label --column 'boxes=float32[*,4]'`. Start it again after a
kill, and it continues.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import google_crc32c

import mdsx

FILES, RECORDS = 4, 250


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, data: bytes) -> bytes:
    """Return a field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(image: bytes, label: int, boxes: list[float]) -> bytes:
    """Return a tf.train.Example, as `SerializeToString` does."""
    features = {
        b"image/encoded": field(1, field(1, image)),
        b"image/class/label": field(3, field(1, varint(label))),
        b"boxes": field(2, field(1, struct.pack(f"<{len(boxes)}f", *boxes))),
    }
    return field(1, b"".join(field(1, field(1, name) + field(2, value)) for name, value in features.items()))


def record(data: bytes) -> bytes:
    """Return a record, as `tf.io.TFRecordWriter` writes it."""

    def checksum(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def write_records(folder: Path) -> None:
    """Write what a pipeline of TensorFlow might have left: pictures with labels and boxes, one record damaged."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        records = []
        for sample in range(RECORDS):
            image = b"\xff\xd8\xff" + bytes([number, sample])  # the beginning of a JPEG
            records.append(record(example(image, number * RECORDS + sample, [0.0, 0.0, 0.5, 0.5] * (sample % 3))))
        if number == 2:
            bad = bytearray(records[-1])
            bad[-10] ^= 1
            records.append(bytes(bad))
        (folder / f"train-{number:05}.tfrecord").write_bytes(b"".join(records))


def main(folder: Path) -> None:
    write_records(folder)
    conversion = mdsx.convert(
        "tfrecord",
        f"{folder}/train-*.tfrecord",
        folder / "pictures",
        columns={"boxes": "float32[*,4]"},  # the others are inferred from the first samples
        rename={"image": "image/encoded", "label": "image/class/label"},
        on_error="skip",
        watch=lambda progress: [print("skipped:", problem) for problem in progress.problems],
    )
    print(conversion.samples, "samples:", dict(conversion.columns))
    loader = mdsx.Loader(folder / "pictures", 100, cache=folder / "cache")
    seen = sorted(int(label) for batch in loader for label in batch["label"])
    print("one epoch has every sample once:", seen == list(range(FILES * RECORDS)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
