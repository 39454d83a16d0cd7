"""Files in other formats, read in place, and Arrow data. Each format has its own package; the modules here are for
several of them."""
