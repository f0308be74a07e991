"""Slices of the timeline and of memory curves at a zoom level."""
