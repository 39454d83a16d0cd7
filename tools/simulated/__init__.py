"""The simulation against reality: the same settings run for real, over a link of known speed, and simulated."""
