"""What step clocks write into a log directory: how long each step of each rank took, and what got slower."""
