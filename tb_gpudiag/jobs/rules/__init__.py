"""Rules on the ranks of a job: GD602 to GD607. Each has its page next to it."""
