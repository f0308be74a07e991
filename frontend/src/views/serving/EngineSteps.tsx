import { plural, time } from "../../base/format";
import { tableOf } from "../../base/tables";
import type { Report, Serving } from "../../wire/report";
import { TableRows } from "../parts/ReportTable";
import { Section } from "../parts/Section";

/** Steps of an inference server's engine by kind, and what the engine does while the GPU is idle. */
export function EngineSteps({ report }: { report: Report }) {
  const { serving } = report;
  const kinds = tableOf(report, "engine_steps");
  const functions = tableOf(report, "engine_functions");
  if (!serving || !kinds) return null;
  return (
    <Section title="Engine steps" aside={<span className="gd-muted">{about(serving)}</span>}>
      <TableRows table={kinds} />
      {serving.waiting_us > 0 && <p className="gd-nothing">{waiting(serving)}</p>}
      {functions && (
        <div className="gd-part">
          <h3>{functions.title}</h3>
          <TableRows table={functions} />
        </div>
      )}
    </Section>
  );
}

function about({ server, marked, steps }: Serving): string {
  const found = marked ? "" : ", by the function that runs the model";
  return `${server} · ${plural(steps, "step")} in the step window${found}`;
}

function waiting({ waiting_us, waits_for_engine }: Serving): string {
  const why = waits_for_engine
    ? "this worker waited for its engine's process. Whether a request was there, its recording does not show."
    : "no request was left.";
  return `For ${time(waiting_us)} there was no batch to run: ${why}`;
}
