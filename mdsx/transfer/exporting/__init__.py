"""Export datasets to files that other tools read: WebDataset tars, Parquet, and lines of JSON."""

from __future__ import annotations

from mdsx.transfer.exporting.exporter import Export, ExportProgress, export

__all__ = ["Export", "ExportProgress", "export"]
