import { count, percent, plural, time } from "../../base/format";
import type { Pipeline } from "../../wire/report";
import { Section } from "../parts/Section";

/** The schedule of a pipeline, and how long each stage has nothing to compute. */
export function PipelinePart({ pipeline }: { pipeline: Pipeline }) {
  const { schedule, stages, micro_batches: batches, bubble_share: bubble, ideal_share: ideal } = pipeline;
  const about = [
    schedule || "schedule not known",
    plural(stages, "stage"),
    batches > 0 ? `${count(batches)} micro-batches` : "",
    `stages wait ${percent(bubble)} of the time${ideal > 0 && ideal <= bubble ? `, ${percent(ideal)} at best` : ""}`,
  ];
  return (
    <Section title="Pipeline" aside={<span className="gd-muted">{about.filter(Boolean).join(" · ")}</span>}>
      <table className="gd-table">
        <thead>
          <tr>
            <th scope="col">Stage</th>
            <th scope="col" className="gd-number">
              Computing
            </th>
            <th scope="col" className="gd-number" title="Before its first micro-batch">
              Bubble: warm-up
            </th>
            <th scope="col" className="gd-number">
              Between
            </th>
            <th scope="col" className="gd-number" title="After its last micro-batch">
              Drain
            </th>
          </tr>
        </thead>
        <tbody>
          {pipeline.ranks.map((rank) => (
            <tr key={rank.rank}>
              <td>{`${count(rank.stage)} (rank ${count(rank.rank)})`}</td>
              <td className="gd-number">{time(rank.computing_us)}</td>
              <td className="gd-number">{time(rank.warm_up_us)}</td>
              <td className="gd-number">{time(rank.between_us)}</td>
              <td className="gd-number">{time(rank.drain_us)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
