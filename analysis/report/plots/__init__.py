"""Pictures of a sweep: plain functions that take tidy frames and return a matplotlib figure."""
