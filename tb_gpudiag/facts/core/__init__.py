"""Facts that most others are computed from: steps, launches, host time, busy and idle time."""
