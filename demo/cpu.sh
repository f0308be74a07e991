#!/bin/sh
# cpu.sh LOGDIR TORCH_VERSION: record demo/cpu.py and demo/memory_leak.py with an installed torch, or else with one
# installed into .make/torch. Fail with a one-line reason if torch cannot be installed.
set -u
logdir=$1 version=$2
python=${PYTHON:-python3}
without() { echo "demo: skipping the real CPU trace: $1" >&2; exit 1; }

[ "${TORCH:-1}" != 0 ] || without "TORCH=0"
if ! "$python" -c 'import torch.profiler' 2>/dev/null; then
    python=.make/torch/bin/python
    if ! "$python" -c 'import torch.profiler' 2>/dev/null; then
        echo "demo: installing torch $version into .make/torch, which can be a large download (make demo TORCH=0 skips it)"
        "${PYTHON:-python3}" -m venv --clear .make/torch || without "cannot create a virtual environment"
        "$python" -m pip install --quiet --disable-pip-version-check "torch==$version" numpy >.make/torch.log 2>&1 ||
            without "torch $version could not be installed (see .make/torch.log)"
    fi
fi
echo "demo: recording small training jobs on this machine's CPU"
record() { "$python" "demo/$1.py" --logdir "$logdir/$2" --device cpu ${3-} >>.make/cpu.log 2>&1; }
: >.make/cpu.log
record cpu input_pipeline && record memory_leak memory_leak && record memory_leak memory_leak_fixed --fixed ||
    without "recording failed (see .make/cpu.log)"
