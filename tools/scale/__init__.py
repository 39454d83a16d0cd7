"""The numbers of a large run, measured or computed: `python3 -m tools scale`."""
