import { count, percent, plural, time } from "../../base/format";
import { term, word } from "../../base/terms";
import { GLOSSARY, LIMITERS } from "../../base/vocabulary";
import { meanStep_us } from "../../state/account";
import { kindText } from "../../state/kinds";
import { TraceInfo_Status, type Recorded, type Report, type TraceInfo } from "../../wire/report";

function stepCount({ steps, inferred_steps: inferred }: Report): string {
  if (steps.length > 0) return count(steps.length);
  return inferred?.are_steps ? `${count(inferred.repetitions)} inferred` : "none marked";
}

function headline(limiter: string, onGpu: boolean): string {
  if (limiter === "compute" && !onGpu) return "CPU computing";
  return word(LIMITERS, limiter);
}

/** What limits the job, in one name and one sentence, with key figures. */
export function Verdict({ report }: { report: Report }) {
  const { trace, verdict, steps, devices } = report;
  const limiter = verdict?.limiter ?? "unknown";
  const kind = kindText(trace?.kind ?? "");
  return (
    <section className="gd-card gd-verdict" aria-label="Verdict" data-limiter={limiter}>
      <div className="gd-verdict-head">
        <span className="gd-over" title={kind ? undefined : GLOSSARY.limiter}>
          {kind ? "Recorded" : "Limited by"}
        </span>
        {trace && <Badges trace={trace} />}
      </div>
      <h1 title={kind || devices.length === 0 ? undefined : term(LIMITERS, limiter)?.explanation}>
        {kind || headline(limiter, devices.length > 0)}
      </h1>
      <p>{verdict?.sentence}</p>
      {!kind && (
        <>
          <dl className="gd-facts">
            {devices.length > 0 && (
              <Fact name="GPU busy" about="gpu busy" value={percent(verdict?.busy_share ?? 0)} />
            )}
            <Fact name="Steps" value={stepCount(report)} />
            {steps.length > 0 && <Fact name="Mean step" value={time(meanStep_us(report))} />}
            <Fact name="Recording" value={time(trace?.duration_us ?? 0)} />
          </dl>
          <p className="gd-verdict-gpus">{gpus(report)}</p>
          {trace?.recorded && <RecordedLine recorded={trace.recorded} />}
        </>
      )}
    </section>
  );
}

function Fact({ name, value, about }: { name: string; value: string; about?: string }) {
  return (
    <div title={about && GLOSSARY[about]}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function gpus({ devices, trace }: Report): string {
  const names = [...new Set(devices.map((device) => device.name || "unnamed GPU"))].join(", ");
  const what =
    devices.length === 0
      ? "No GPU activity recorded"
      : devices.length === 1
        ? names
        : `${plural(devices.length, "GPU")}: ${names}`;
  const rank =
    trace && trace.rank >= 0
      ? ` · rank ${trace.rank}${trace.world_size > 0 ? ` of ${trace.world_size}` : ""}`
      : "";
  return what + rank;
}

function Badges({ trace }: { trace: TraceInfo }) {
  return (
    <span className="gd-badges">
      {trace.simulated && (
        <b data-tone="simulated" title="A simulator wrote this trace. It was not recorded on a GPU.">
          Simulated
        </b>
      )}
      {trace.status === TraceInfo_Status.PARTIAL && (
        <b data-tone="warning" title="The file is truncated. It was read up to its last complete event.">
          Partial
        </b>
      )}
      {trace.status === TraceInfo_Status.WRITING && (
        <b
          data-tone="warning"
          title="The file is still being written. The report covers what it contains so far."
        >
          Writing
        </b>
      )}
    </span>
  );
}

const RECORDED: readonly (readonly [keyof Recorded, string, string])[] = [
  ["steps", "steps", "Call prof.step() after each step"],
  ["stacks", "stacks", "Record with with_stack=True"],
  ["shapes", "shapes", "Record with record_shapes=True"],
  ["memory", "memory", "Record with profile_memory=True"],
];

/** What was recorded and what was not, because that decides what the report can say. */
function RecordedLine({ recorded }: { recorded: Recorded }) {
  return (
    <ul className="gd-recorded" aria-label="Recorded">
      {RECORDED.map(([key, label, how]) => (
        <li
          key={key}
          data-missing={!recorded[key] || undefined}
          title={recorded[key] ? "Recorded" : `Not recorded. ${how}`}
        >
          <span aria-hidden="true">{recorded[key] ? "✓" : "✗"}</span> {label}
          {!recorded[key] && <span className="gd-unseen"> not recorded</span>}
        </li>
      ))}
    </ul>
  );
}
