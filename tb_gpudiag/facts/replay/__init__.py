"""The trace replayed without what a fix removes."""
