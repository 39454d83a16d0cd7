"""Export datasets to files that other tools read: WebDataset tars, Parquet, and lines of JSON."""

from __future__ import annotations

from mdsx.exporting.exporter import Export, ExportOptions, ExportProgress, export

__all__ = ["Export", "ExportOptions", "ExportProgress", "export"]
