#!/bin/sh
# cpu.sh LOGDIR TORCH_VERSION: records demo/cpu.py and demo/memory_leak.py with a torch that is there, or else with one
# installed into .make/torch. Fails, after one line that says why, where torch cannot be had.
set -u
logdir=$1 version=$2
python=${PYTHON:-python3}
without() { echo "demo: no real CPU trace this time: $1" >&2; exit 1; }

[ "${TORCH:-1}" != 0 ] || without "TORCH=0"
if ! "$python" -c 'import torch.profiler' 2>/dev/null; then
    python=.make/torch/bin/python
    if ! "$python" -c 'import torch.profiler' 2>/dev/null; then
        echo "demo: installing torch $version into .make/torch; that can be a large download (make demo TORCH=0 does without)"
        "${PYTHON:-python3}" -m venv --clear .make/torch || without "no virtual environment"
        "$python" -m pip install --quiet --disable-pip-version-check "torch==$version" numpy >.make/torch.log 2>&1 ||
            without "torch $version could not be installed (see .make/torch.log)"
    fi
fi
echo "demo: recording small trainings on this machine's CPU"
record() { "$python" "demo/$1.py" --logdir "$logdir/$2" --device cpu ${3-} >>.make/cpu.log 2>&1; }
: >.make/cpu.log
record cpu input_pipeline && record memory_leak memory_leak && record memory_leak memory_leak_fixed --fixed ||
    without "recording failed (see .make/cpu.log)"
