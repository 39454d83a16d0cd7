"""What belongs to a process: its threads, its limits, its children, and who owns what after a fork."""
