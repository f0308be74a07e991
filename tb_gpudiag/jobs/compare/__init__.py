"""Compare two traces or jobs: is the candidate faster than the base, and where did the difference go?"""
