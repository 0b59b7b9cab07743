"""Where bodies run: in the driver, in worker processes, later on a Ray cluster."""
