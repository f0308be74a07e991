import { count, figures, percent, plural, time } from "../../base/format";
import { word } from "../../base/terms";
import { ENGINE_KINDS } from "../../base/vocabulary";
import type { EngineFunction, EngineKind, Serving } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 6;

const KINDS: readonly ShortColumn<EngineKind>[] = [
  { title: "Kind", className: "gd-name", cell: ({ kind }) => word(ENGINE_KINDS, kind) },
  { figure: "engine_steps", cell: ({ steps }) => count(steps) },
  {
    figure: "engine_step_time",
    tip: ({ low_us, high_us }) => `quartiles ${time(low_us)} to ${time(high_us)}`,
    cell: ({ median_us }) => time(median_us),
  },
  { figure: "engine_requests", cell: ({ requests }) => known(requests, count) },
  { figure: "engine_tokens", cell: ({ tokens }) => known(tokens, count) },
  { figure: "engine_rate", cell: ({ tokens_per_s }) => known(tokens_per_s, figures) },
  { figure: "engine_busy", cell: ({ busy_share }) => percent(busy_share) },
  { figure: "engine_gap", cell: ({ gap_known, gap_us }) => (gap_known ? time(gap_us) : "") },
];

const FUNCTIONS: readonly ShortColumn<EngineFunction>[] = [
  { title: "The engine was in", className: "gd-name gd-mono", cell: ({ name }) => name },
  { figure: "idle_before", cell: ({ before_us }) => time(before_us) },
  { figure: "idle_inside", cell: ({ inside_us }) => time(inside_us) },
  { figure: "idle_of_window", cell: ({ share }) => percent(share) },
];

/** Steps of an inference server's engine by kind, and what the engine does while the GPU is idle. */
export function EngineSteps({ serving }: { serving: Serving | undefined }) {
  if (!serving || serving.kinds.length === 0) return null;
  return (
    <Section title="Engine steps" aside={<span className="gd-muted">{about(serving)}</span>}>
      <ShortTable
        className="gd-table gd-launches"
        label="Engine steps by kind"
        columns={KINDS}
        rows={serving.kinds}
        box="Engine steps by kind"
      />
      {serving.waiting_us > 0 && <p className="gd-nothing">{waiting(serving)}</p>}
      {serving.functions.length > 0 && (
        <div className="gd-engine">
          <h3>What the engine did while the GPU was idle</h3>
          <ShortTable
            className="gd-table gd-launches"
            label="Idle time by the engine's function"
            columns={FUNCTIONS}
            rows={serving.functions}
            first={FIRST}
          />
        </div>
      )}
    </Section>
  );
}

function about({ server, marked, steps }: Serving): string {
  const found = marked ? "" : ", by the function that runs the model";
  return `${server} · ${plural(steps.length, "step")} in the step window${found}`;
}

function waiting({ waiting_us, waits_for_engine }: Serving): string {
  const why = waits_for_engine
    ? "this worker waited for its engine's process. Whether a request was there, its recording does not show."
    : "no request was left.";
  return `For ${time(waiting_us)} there was no batch to run: ${why}`;
}

/** Numbers that the server does not state are negative. */
function known(value: number, shown: (value: number) => string): string {
  return value >= 0 ? shown(value) : "";
}
