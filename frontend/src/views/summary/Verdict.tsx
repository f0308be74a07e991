import { limiterWord } from "../../base/limiters";
import { GLOSSARY, LIMITERS } from "../../base/vocabulary";
import { sentenceAbove } from "../../state/findings";
import { kindText, onlyRecord } from "../../state/kinds";
import { TraceInfo_Status, type TraceInfo } from "../../wire/report";
import type { ReportProps } from "../parts/reportProps";
import { First } from "./First";
import { JobLink } from "./JobLink";

/** What limits the job, in one name and one sentence, and what to fix first. */
export function Verdict({ report, entry }: ReportProps) {
  const { trace, verdict, devices, mfu } = report;
  const limiter = verdict?.limiter ?? "unknown";
  const headline = verdict?.headline ?? "";
  const kind = kindText(trace?.kind ?? "trace");
  return (
    <section className="gd-card gd-verdict" aria-label="Verdict" data-limiter={limiter}>
      <div className="gd-verdict-head">
        <span className="gd-over" title={kind ? undefined : GLOSSARY.bottleneck}>
          {headline ? "Ends the job" : kind ? "Recorded" : "Bottleneck"}
        </span>
        <h1 title={kind || devices.length === 0 ? undefined : LIMITERS[limiter].explanation}>
          {headline || kind || limiterWord(limiter, devices.length > 0)}
        </h1>
        {verdict?.where && <span className="gd-where">look first {verdict.where}</span>}
        {verdict?.leak && <span className="gd-where">{verdict.leak}</span>}
        {trace && <Badges trace={trace} />}
        <JobLink entry={entry} />
      </div>
      <p>{sentenceAbove(report)}</p>
      {mfu && (
        <p className="gd-muted" title={GLOSSARY.mfu}>
          {mfu.sentence}
        </p>
      )}
      <First report={report} hasMemoryView={!onlyRecord(entry.kind)} />
    </section>
  );
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
