import { count, figures, percent, plural, time } from "../../base/format";
import { word } from "../../base/terms";
import { ENGINE_KINDS } from "../../base/vocabulary";
import type { EngineFunction, EngineKind, Serving } from "../../wire/report";
import { More } from "../parts/More";
import { NumberTitle } from "../parts/NumberTitle";
import { Section } from "../parts/Section";

const FIRST = 6;

/** Steps of an inference server's engine by kind, and what the engine does while the GPU is idle. */
export function EngineSteps({ serving }: { serving: Serving | undefined }) {
  if (!serving || serving.kinds.length === 0) return null;
  return (
    <Section title="Engine steps" aside={<span className="gd-muted">{about(serving)}</span>}>
      <div className="gd-wide-plain" role="group" aria-label="Engine steps by kind" tabIndex={0}>
        <table className="gd-table gd-launches" aria-label="Engine steps by kind">
          <thead>
            <tr>
              <th scope="col">Kind</th>
              <NumberTitle column="engine_steps" />
              <NumberTitle column="engine_step_time" />
              <NumberTitle column="engine_requests" />
              <NumberTitle column="engine_tokens" />
              <NumberTitle column="engine_rate" />
              <NumberTitle column="engine_busy" />
              <NumberTitle column="engine_gap" />
            </tr>
          </thead>
          <tbody>
            {serving.kinds.map((kind) => (
              <KindRow key={kind.kind} kind={kind} />
            ))}
          </tbody>
        </table>
      </div>
      {serving.waiting_us > 0 && <p className="gd-nothing">{waiting(serving)}</p>}
      {serving.functions.length > 0 && <Functions rows={serving.functions} />}
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

function KindRow({ kind }: { kind: EngineKind }) {
  const range = `quartiles ${time(kind.low_us)} to ${time(kind.high_us)}`;
  return (
    <tr>
      <td className="gd-name">{word(ENGINE_KINDS, kind.kind)}</td>
      <td className="gd-number">{count(kind.steps)}</td>
      <td className="gd-number" title={range}>
        {time(kind.median_us)}
      </td>
      <td className="gd-number">{known(kind.requests, count)}</td>
      <td className="gd-number">{known(kind.tokens, count)}</td>
      <td className="gd-number">{known(kind.tokens_per_s, figures)}</td>
      <td className="gd-number">{percent(kind.busy_share)}</td>
      <td className="gd-number">{kind.gap_known ? time(kind.gap_us) : ""}</td>
    </tr>
  );
}

function Functions({ rows }: { rows: readonly EngineFunction[] }) {
  return (
    <div className="gd-queues">
      <h3>What the engine did while the GPU was idle</h3>
      <More items={rows} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-launches" aria-label="Idle time by the engine's function">
            <thead>
              <tr>
                <th scope="col">The engine was in</th>
                <NumberTitle column="idle_before" />
                <NumberTitle column="idle_inside" />
                <NumberTitle column="idle_of_window" />
              </tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <tr key={row.name}>
                  <td className="gd-name gd-mono">{row.name}</td>
                  <td className="gd-number">{time(row.before_us)}</td>
                  <td className="gd-number">{time(row.inside_us)}</td>
                  <td className="gd-number">{percent(row.share)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </More>
    </div>
  );
}
