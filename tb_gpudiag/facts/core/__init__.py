"""What most facts are computed from: steps, launches, host time, busy and idle time."""
