"""Shares that decide a verdict, on one trace or on a job."""

from __future__ import annotations

# A GPU that computes this much of the time is limited by computing: everything else together is worth a
# quarter of the step at most.
COMPUTE_SHARE = 0.80

# The limiter must stand out. If the second part is nearly as large, fixing one only uncovers the other.
CLEAR_LEAD = 1.5

# Host-bound jobs lose time in Python and in launching side by side. The verdict names what the first finding
# about either is about. Without such a finding, fewer launches are the fix from this share of launching.
LAUNCH_PART = 0.40
