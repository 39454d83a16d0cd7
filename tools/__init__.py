"""What people run from a checkout: the check, the quickstart, a local S3 server."""
