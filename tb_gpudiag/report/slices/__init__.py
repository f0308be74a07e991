"""Slices of the timeline and of the memory curve at a zoom level."""
