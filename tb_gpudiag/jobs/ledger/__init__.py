"""A file of fixes that were verified: what they promised, and what they gave."""
