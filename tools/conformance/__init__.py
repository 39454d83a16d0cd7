"""The conformance matrix: which data loader loses or repeats samples, and where. See docs/conformance.md."""
