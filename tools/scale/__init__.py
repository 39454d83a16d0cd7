"""The numbers of a large run: computed for a petabyte, and measured at full count with small objects."""
