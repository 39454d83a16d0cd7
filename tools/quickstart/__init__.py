"""The quickstart: documents, a training program and its job, what is measured, and the comparison."""
