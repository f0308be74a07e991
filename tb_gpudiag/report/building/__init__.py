"""Builds the Report from facts and findings."""
