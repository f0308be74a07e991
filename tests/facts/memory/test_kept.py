from __future__ import annotations

from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder

STEP_US = 100.0


def test_what_is_two_steps_old_is_kept_until_it_is_freed(tmp_path: Path) -> None:
    """What the first step allocates is not counted, nor what goes in the next one."""
    trace = TraceBuilder()
    main = trace.thread()
    made = list[int]()
    for step in range(7):
        at = step * STEP_US
        main.step(step, at=at, us=STEP_US - 2)
        made.append(main.alloc(1 << step, at=at + 10, device=None))
        if step in (3, 4):
            main.free(made[step - 1], at=at + 20)
        if step == 5:
            main.free(made[1], at=at + 5)
        main.free(main.alloc(1024, at=at + 50, device=None), at=at + 60)
        main.op("aten::clone", at=at + 30, us=5)
    (memory,) = Facts(read_trace(str(trace.write(tmp_path)))).memory
    assert memory.kept_bytes.tolist() == [0, 0, 0, 2, 2, 0, 16]
