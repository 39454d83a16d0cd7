"""Real servers of object storage on this machine, one module each, for tests and tools."""
