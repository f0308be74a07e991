import { limiterWord } from "../../base/limiters";
import { count, plural } from "../../base/format";
import { tableOf } from "../../base/tables";
import { GLOSSARY } from "../../base/vocabulary";
import { sentenceAbove } from "../../state/findings";
import { clocksText } from "../../state/job";
import type { JobReport } from "../../wire/report";
import { stepText } from "../parts/stepText";

/** One verdict for the whole job, with its key figures. */
export function JobVerdict({ job }: { job: JobReport }) {
  const { verdict, ranks, world_size, parallelism, clocks, steps, step_time: step } = job;
  const collectives = tableOf(job, "rank_memory") === undefined ? job.collectives : undefined;
  const { limiter = "unknown", headline = "" } = verdict ?? {};
  const ranksText =
    world_size > ranks.length ? `${count(ranks.length)} of ${count(world_size)}` : count(ranks.length);
  return (
    <section className="gd-card gd-verdict" aria-label="Verdict" data-limiter={limiter}>
      <span className="gd-over" title={GLOSSARY.bottleneck}>
        Bottleneck of the job
      </span>
      <h1>
        {headline === ""
          ? limiterWord(
              limiter,
              ranks.some((rank) => rank.device_name !== ""),
            )
          : headline}
      </h1>
      <p>{sentenceAbove(job)}</p>
      <dl className="gd-facts">
        <Fact name="Ranks" value={ranksText} />
        {parallelism && <Fact name="Parallelism" value={parallelism} />}
        {steps.length > 0 && <Fact name="Steps" value={count(steps.length)} />}
        {step && step.median_us > 0 && <Fact name="Step, median rank" value={stepText(step)} />}
      </dl>
      {collectives && (
        <p>
          {matchedText(collectives)} Clocks: {clocksText(clocks)}.
        </p>
      )}
    </section>
  );
}

function matchedText({ matched, unmatched }: { matched: number; unmatched: number }): string {
  const without = unmatched > 0 ? `, ${count(unmatched)} without a counterpart` : "";
  return `${plural(matched, "collective")} matched across ranks${without}.`;
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
