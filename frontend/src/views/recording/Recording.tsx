import { NSYS_RECORDING, RECORDING } from "../../base/vocabulary";
import { count, percent, time } from "../../base/format";
import { useAgainst } from "../../state/base";
import { onlyMemory } from "../../state/kinds";
import type { RecordingCost, Report } from "../../wire/report";
import { About } from "../about/About";
import { UncheckedList } from "../findings/Others";
import { CodeBlock } from "../parts/CodeBlock";
import type { ReportProps } from "../parts/reportProps";
import { Section } from "../parts/Section";
import { Counters } from "./Counters";
import { NotInFile } from "./NotInFile";
import { fromNsys, partsOf } from "./parts";

/** The file: what it contains and lacks, what recording it cost, and how to record a better one. */
export default function Recording({ entry, report }: ReportProps) {
  const trace = report.trace?.kind ?? "trace";
  const base = useAgainst(entry)?.report ?? null;
  return (
    <>
      {!onlyMemory(trace) && <Contents report={report} base={base} />}
      <Counters counters={report.counters} />
      {report.unchecked.length > 0 && (
        <div className="gd-card">
          <UncheckedList items={report.unchecked} opened />
        </div>
      )}
      {!onlyMemory(trace) && (
        <Section title="Record a better trace">
          <div className="gd-recording-block">
            <p>
              This block records everything that findings need. If stacks slow the job down, record twice:
              take the timings from the recording without{" "}
              <code>{fromNsys(report) ? "emit_nvtx and --sample" : "with_stack"}</code>, the functions from
              the one with stacks.
            </p>
            <CodeBlock code={fromNsys(report) ? NSYS_RECORDING : RECORDING} label="recording block" />
          </div>
        </Section>
      )}
      <NotInFile />
      <About entry={entry} report={report} />
    </>
  );
}

interface ContentsProps {
  readonly report: Report;
  /** The pinned base's report. */
  readonly base: Report | null;
}

function Contents({ report, base }: ContentsProps) {
  const theirs = base && partsOf(base);
  return (
    <Section title="What this trace has">
      <table className="gd-plain gd-recording">
        <thead>
          <tr>
            <th scope="col">Part</th>
            <th scope="col">Recorded</th>
            {theirs && <th scope="col">In the base</th>}
            <th scope="col">What it shows</th>
            <th scope="col">How to record it</th>
          </tr>
        </thead>
        <tbody>
          {partsOf(report).map((part, at) => (
            <tr key={part.name}>
              <th scope="row">{part.name}</th>
              <Recorded is={part.recorded} />
              {theirs && <Recorded is={theirs[at]?.recorded ?? false} />}
              <td>{part.shows}</td>
              <td>{part.recorded ? "" : <code>{part.how}</code>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {report.trace && <p className="gd-recording-cost">Recorded for {time(report.trace.duration_us)}.</p>}
      {report.recording_cost && <Cost cost={report.recording_cost} />}
    </Section>
  );
}

function Recorded({ is }: { is: boolean }) {
  return <td data-missing={!is || undefined}>{is ? "✓ yes" : "✗ no"}</td>;
}

function Cost({ cost }: { cost: RecordingCost }) {
  return (
    <p className="gd-recording-cost">
      <b>
        Recording itself took the launching threads an estimated {time(cost.low_us)} to {time(cost.high_us)}{" "}
        of the step window ({percent(cost.low_share)} to {percent(cost.high_share)}).
      </b>{" "}
      {count(cost.frames)} Python frames and {count(cost.operators)} operators were recorded.
      {cost.frame_us > 0 && ` Each frame took at least ${time(cost.frame_us)}.`} Profiling slows the CPU, so
      CPU costs here are overstated.
    </p>
  );
}
