"""The other loaders: an environment for each. Used by tools/conformance and tools/bench."""
