"""Convert other files to datasets and back, and index files to read them in place."""
