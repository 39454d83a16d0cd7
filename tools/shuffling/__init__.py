"""The tables and pictures of docs/shuffling.md, computed from the orders themselves."""
