"""What belongs to a process and is shared by everything in it: its threads and its limits."""
