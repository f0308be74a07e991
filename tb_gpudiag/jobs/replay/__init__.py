"""Replay of a job whose ranks wait for one another: what stragglers cost, and what a fix would give back."""
