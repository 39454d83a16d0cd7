"""What `device=` of a loader does on a machine with a GPU, checked and measured (`python3 -m tools device`)."""
