"""Fuzzing: arbitrary files and requests must end in a report, an answer, or an error that says what to do.

`make fuzz` runs each target for a while, and writes what fails to build/fuzz. Run such a file again with
`python -m tests.fuzz TARGET FILE`, and add it to corpus/TARGET with the fix: test_fuzz.py runs all of them.
Traces are mutations of the corpus, and tiny recordings of any shape (tiny.py); the compiled modules alone get
odd events and texts (odd_events.py), of which they read some thousand a second. `make fuzz SANITIZE=1` runs
the compiled modules with checks of each access to memory.
"""
