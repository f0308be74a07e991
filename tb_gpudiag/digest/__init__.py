"""What a trace leaves behind for others: read by jobs/ in place of the trace."""
