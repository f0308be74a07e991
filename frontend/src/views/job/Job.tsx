import { contentsOf } from "../../state/views";
import { useJob } from "../../state/queries";
import type { JobReport, TraceEntry } from "../../wire/report";
import { tableOf } from "../../base/tables";
import { plural, sentence } from "../../base/format";
import { useBaseJob, type BaseJob } from "../../state/baseJob";
import { missingText } from "../../state/job";
import { CheckedList, UncheckedList } from "../findings/Others";
import { FindingList } from "../findings/FindingList";
import { Notice } from "../parts/Notice";
import { ReportTable } from "../parts/ReportTable";
import { Section } from "../parts/Section";
import { Answer } from "../status/Answer";
import { Problem } from "../status/Problem";
import { Collectives } from "./Collectives";
import { JobHeat } from "./JobHeat";
import { JobVerdict } from "./JobVerdict";
import { Ranks } from "./Ranks";
import { RankTimeline } from "./RankTimeline";
import { SlowdownPart } from "./SlowdownPart";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** All ranks that were recorded together with the trace on the page. */
export default function Job({ traces, entry }: Props) {
  const contents = contentsOf(traces.filter(({ run }) => run === entry.run));
  const { data, error } = useJob(entry.id, contents);
  const base = useBaseJob(traces, entry);
  return (
    <Answer
      doing="Comparing the ranks"
      failed="This job has no report"
      state={data}
      error={error}
      answer={data?.job}
    >
      {(job) => <Shown job={job} base={base} />}
    </Answer>
  );
}

/** What the ranks did and when. */
function Times({ job, base }: { job: JobReport; base: BaseJob | null }) {
  return (
    <>
      <Ranks job={job} base={base} />
      <RankTimeline job={job} />
      <div className="gd-beside">
        <JobHeat job={job} />
        {job.slowdown && <SlowdownPart slowdown={job.slowdown} />}
      </div>
      <ReportTable report={job} id="stages" />
      <ReportTable report={job} id="units" />
      <div className="gd-beside">
        <Collectives job={job} />
        <ReportTable report={job} id="sizes" />
      </div>
    </>
  );
}

function Shown({ job, base }: { job: JobReport; base: BaseJob | null }) {
  const missing = missingText(job);
  const ofMemory = tableOf(job, "rank_memory") !== undefined;
  return (
    <>
      {missing && <Notice tone="warning">{missing}</Notice>}
      {job.problems.map((problem, at) => (
        <Problem key={at} title="A rank cannot be read" problem={problem} />
      ))}
      <JobVerdict job={job} />
      <Section
        title="Findings about the job"
        aside={<span className="gd-muted">{plural(job.findings.length, "finding")}</span>}
      >
        {job.findings.length === 0 && (
          <p className="gd-nothing">
            {job.collectives?.matched || ofMemory
              ? "The rules on ranks have no finding."
              : "The ranks could not be compared: see above."}
          </p>
        )}
        <FindingList findings={job.findings} />
        <UncheckedList items={job.unchecked} />
        <CheckedList items={job.clear} />
      </Section>
      <ReportTable report={job} id="rank_memory" />
      <ReportTable report={job} id="held_by_rank" />
      {!ofMemory && <Times job={job} base={base} />}
      {job.notes.length > 0 && (
        <Section title="Notes">
          <ul className="gd-notes">
            {job.notes.map((note, at) => (
              <li key={at}>{sentence(note)}</li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
