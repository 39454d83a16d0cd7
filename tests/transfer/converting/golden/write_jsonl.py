"""Write golden/*.jsonl.*, each with another tool: `python write_jsonl.py`.

`jq -c . duckdb.json > jq.jsonl` made the last one.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
ROWS = [
    {"id": 1, "text": 'grüße\n\t"x":', "score": 0.1, "tags": ["a", "b"], "numbers": [1, 2], "at": {"x": 1, "y": None}},
    {"id": 2, "text": "/ < > \u2028", "score": -1e300, "tags": [], "numbers": [], "at": {"x": 2, "y": "z"}},
    {"id": 3, "text": None, "score": 3.0, "tags": ["😀"], "numbers": [-(2**40)], "at": {"x": 3, "y": None}},
]

if __name__ == "__main__":
    import duckdb
    import pandas
    import polars

    frame = pandas.DataFrame(ROWS)
    frame.to_json(FOLDER / "pandas.jsonl.gz", orient="records", lines=True, double_precision=15)
    frame.to_json(FOLDER / "pandas.jsonl.zst", orient="records", lines=True, force_ascii=False, double_precision=15)
    polars.DataFrame(ROWS).write_ndjson(FOLDER / "polars.ndjson")
    rows = polars.DataFrame(ROWS).to_arrow()
    for suffix in ("", ".gz", ".zst"):
        duckdb.execute(f"copy (select * from rows) to '{FOLDER}/duckdb.json{suffix}' (format json)")
