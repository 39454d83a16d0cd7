"""Convert Parquet files to a dataset, and export it as Parquet again, with the same types.

    pip install 'mdsx[parquet]'
    python convert_parquet.py folder

The same on the command line: `mdsx convert parquet folder/table folder/corpus --drop url`, then
`mdsx export parquet folder/corpus folder/again`. To read Parquet files where they are, see `mdsx index parquet`.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import mdsx

FILES, ROWS = 3, 400


def write_table(folder: Path) -> None:
    """Write what a job of a query engine might have left: several files of one table."""
    folder.mkdir(parents=True, exist_ok=True)
    day = datetime.date(2026, 1, 1)
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        columns = {
            "id": pa.array(ids, pa.int32()),
            "text": [f"document {i}" for i in ids],
            "day": pa.array([day] * ROWS, pa.date32()),
            "url": [f"https://example.com/{i}" for i in ids],
        }
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=150)


def main(folder: Path) -> None:
    write_table(folder / "table")
    conversion = mdsx.convert("parquet", str(folder / "table"), folder / "corpus", drop="url")
    print(conversion.samples, "samples:", dict(conversion.columns))
    loader = mdsx.Loader(folder / "corpus", 100, cache=folder / "cache")
    seen = sorted(int(number) for batch in loader for number in batch["id"])
    print("one epoch has every sample once:", seen == list(range(FILES * ROWS)))
    mdsx.export("parquet", folder / "corpus", folder / "again")
    before, after = pq.read_table(folder / "table").drop_columns(["url"]), pq.read_table(folder / "again")
    print("the same table comes back:", after.to_pylist() == before.to_pylist(), *map(str, after.schema.types))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
