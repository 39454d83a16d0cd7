"""Data from other kinds of files to a dataset and back, and indexes of files in place."""
