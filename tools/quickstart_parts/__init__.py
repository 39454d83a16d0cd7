"""The parts of tools/quickstart.py: documents, a training program and its job, what is measured, and the comparison."""
