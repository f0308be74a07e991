#!/bin/bash
# Python 3.11 on Linux (numpy 2.4.6): getrusage of a program that a large process starts gives the parent's peak as the
# child's.
#
# A reader would guess: ru_maxrss of a new program is the peak of that program, since exec gives it a new memory.
#
# Seen, a parent with an array of 400 MiB starts a Python that needs 8: in the child, RUSAGE_SELF says over 400 MiB, and
# VmHWM in /proc/self/status the true 8. The parent's RUSAGE_CHILDREN says 400, too. It is still so after the parent
# freed the array, since its peak counts. A shell between the two hides it, as it starts the program by a fork of
# its own. So all benchmarks that one large process starts seem to have at least its peak.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q numpy==2.4.6
cat >"$work/see.py" <<'END'
import resource
import subprocess
import sys

import numpy

CHILD = (
    "import resource; status = open('/proc/self/status').read(); "
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, status.split('VmHWM:')[1].split()[0])"
)


def peaks_mib(command):
    """Return the peak of a child by getrusage and by /proc."""
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(kib) // 1024 for kib in told.split()]


child = [sys.executable, "-S", "-c", CHILD]
small = peaks_mib(child)
array = numpy.ones(400 * 2**20, dtype=numpy.int8)
large = peaks_mib(child)
del array
freed = peaks_mib(child)
shell = peaks_mib(["sh", "-c", '"$0" "$@"; true', *child])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print("getrusage, VmHWM of the child; small parent:", small, "large:", large, "freed:", freed, "by a shell:", shell)
print("RUSAGE_CHILDREN:", children)
assert large[0] >= 400 and freed[0] >= 400 and children >= 400
assert max(small[0], shell[0], small[1], large[1], freed[1], shell[1]) < 100
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
