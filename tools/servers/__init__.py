"""Local servers of the clouds, for tests and tools."""
