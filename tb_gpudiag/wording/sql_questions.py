"""Useful queries: shown in the documentation and on the page, and each checked against the report."""

from __future__ import annotations

from typing import Final, NamedTuple


class SqlQuestion(NamedTuple):
    """A question about a trace, and the query that answers it."""

    question: str
    query: str


QUESTIONS: Final = (
    SqlQuestion(
        "Which line of yours keeps the GPU idle most?",
        """SELECT line, cause, sum(duration_ns) / 1e6 AS idle_ms
FROM idle WHERE in_window
GROUP BY ALL ORDER BY idle_ms DESC LIMIT 20""",
    ),
    SqlQuestion(
        "Why was the GPU idle, step by step?",
        """SELECT trace, device, step, cause, sum(duration_ns) / 1e6 AS idle_ms
FROM idle WHERE step IS NOT NULL
GROUP BY ALL ORDER BY trace, device, step, idle_ms DESC""",
    ),
    SqlQuestion(
        "What did the host do in gaps longer than 1 ms?",
        """SELECT trace, device, gap, gaps.start_ns / 1e6 AS at_ms, gaps.duration_ns / 1e6 AS gap_ms,
  idle.cause, idle.name, idle.line, sum(idle.duration_ns) / 1e6 AS part_ms
FROM gaps JOIN idle USING (trace, device, gap)
WHERE gaps.duration_ns > 1e6
GROUP BY ALL ORDER BY gap_ms DESC, gap, part_ms DESC""",
    ),
    SqlQuestion(
        "How many launches has a step, by operator, and what do they cost?",
        """SELECT operator, count(*) / any_value(steps) AS launches_per_step,
  sum(duration_ns) / 1e6 AS host_ms, avg(empty_queue::INT) AS empty_queue_share, sum(idle_ns) / 1e6 AS idle_ms
FROM launches JOIN traces USING (trace)
GROUP BY trace, operator ORDER BY idle_ms DESC, host_ms DESC LIMIT 20""",
    ),
    SqlQuestion(
        "Which are the slowest 1 % of launches?",
        """SELECT name, operator, line, step, duration_ns / 1e3 AS host_us,
  full_queue_ns / 1e3 AS full_queue_us
FROM launches
QUALIFY duration_ns >= quantile_disc(duration_ns, 0.99) OVER ()
ORDER BY duration_ns DESC""",
    ),
    SqlQuestion(
        "Which kernels take the largest share of the GPU's work?",
        """SELECT name, family, count(*) AS kernels, sum(duration_ns) / 1e6 AS ms,
  100 * sum(duration_ns) / sum(sum(duration_ns)) OVER () AS percent
FROM kernels
GROUP BY name, family ORDER BY ms DESC LIMIT 20""",
    ),
    SqlQuestion(
        "How much GPU time has a step, by module?",
        """SELECT module, sum(duration_ns) / 1e6 / any_value(steps) AS ms_per_step
FROM kernels JOIN traces USING (trace)
GROUP BY trace, module ORDER BY ms_per_step DESC LIMIT 20""",
    ),
    SqlQuestion(
        "How fast are copies, by direction?",
        """SELECT direction, pageable, count(*) AS copies, sum(bytes) / 1e6 AS mb,
  sum(bytes) / sum(duration_ns) AS gb_per_s
FROM copies WHERE in_window
GROUP BY ALL ORDER BY mb DESC""",
    ),
    SqlQuestion(
        "How long do collectives take, by size, and how much does it vary?",
        """SELECT kind, bytes, count(*) AS calls, median(duration_ns) / 1e6 AS median_ms,
  quantile_cont(duration_ns, 0.1) / 1e6 AS p10_ms, quantile_cont(duration_ns, 0.9) / 1e6 AS p90_ms,
  sum(exposed_ns) / 1e6 AS exposed_ms
FROM collectives
GROUP BY kind, bytes ORDER BY sum(duration_ns) DESC""",
    ),
    SqlQuestion(
        "Which collectives are exposed, and why?",
        """SELECT kind, parallelism, unit, why_exposed, count(*) AS calls, sum(exposed_ns) / 1e6 AS exposed_ms
FROM collectives
GROUP BY ALL ORDER BY exposed_ms DESC LIMIT 20""",
    ),
    SqlQuestion(
        "Who holds memory at the peak?",
        """SELECT device, operator, module, line, count(*) AS allocations, sum(bytes) / 1e6 AS mb
FROM memory WHERE at_peak
GROUP BY ALL ORDER BY mb DESC LIMIT 20""",
    ),
)
