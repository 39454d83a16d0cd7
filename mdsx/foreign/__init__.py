"""Files that others wrote, read in place, and Arrow data. Each format has a package of its own."""
