"""Fuzzing: arbitrary files and requests must end in a report, an answer, or an error that says what to do.

`make fuzz` runs each target for a while, and writes what fails to build/fuzz. Run such a file again with
`python -m tests.fuzz TARGET FILE`, and add it to corpus/TARGET with the fix: test_fuzz.py runs all of them.

- `targets.py`: what takes traces, requests and digests all the way; `readers.py`: readers alone, which take
  a hundred to some thousand files a second of CPU time.
- Inputs: mutations of the corpus (`mutate.py`); tiny recordings of any shape (`tiny.py`); for the compiled
  modules, odd events and texts (`odd_events.py`); for each other kind of file, a whole one (`whole_files.py`)
  that is changed in a few places with odd values (`odd_values.py`) and written in its form (`writers.py`).
- What must hold for all that is read: `sound.py`.

`make fuzz SANITIZE=1` runs the compiled modules with checks of each access to memory, on one input for each
seed. What fails is named by its seed, which makes it again: `--blind --seed SEED --inputs 1`.
"""
