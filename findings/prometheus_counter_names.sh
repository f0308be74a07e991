#!/bin/bash
# prometheus_client 0.26.0 (Python 3.11): its parser gives DCGM's counters another name than the text has.
#
# A reader would guess: samples have the names of the text; _total is what the library writes for its own counters.
#
# Seen, text as DCGM's exporter writes it: DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, a counter, is a sample
# DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total, and is written so again; the family keeps its name. A gauge's sample and
# one without a TYPE line keep theirs. So a look-up by the name that a query of Prometheus has finds the utilisation and
# no energy, and what is passed on through the library is another series.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q prometheus-client==0.26.0
cat >"$work/see.py" <<'END'
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

ENERGY, REPLAYS, USE = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_GPU_UTIL"
TEXT = f"""# HELP {ENERGY} Energy since boot (mJ).
# TYPE {ENERGY} counter
{ENERGY}{{gpu="0"}} 5000
# HELP {USE} Utilisation (percent).
# TYPE {USE} gauge
{USE}{{gpu="0"}} 97
{REPLAYS}{{gpu="0"}} 3
"""


class Again:
    """A collector that passes on what was parsed."""

    def collect(self):
        return text_string_to_metric_families(TEXT)


families = list(text_string_to_metric_families(TEXT))
names = {family.name: [sample.name for sample in family.samples] for family in families}
registry = CollectorRegistry()
registry.register(Again())
written = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
print(names, written)
assert names == {ENERGY: [ENERGY + "_total"], USE: [USE], REPLAYS: [REPLAYS]}
assert written == [f'{ENERGY}_total{{gpu="0"}} 5000.0', f'{USE}{{gpu="0"}} 97.0', f'{REPLAYS}{{gpu="0"}} 3.0']
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
