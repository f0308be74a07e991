import { count, percent, plural, time } from "../../base/format";
import type { Pipeline } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

type Stage = Pipeline["ranks"][number];

const NUMBER = "gd-number";

const COLUMNS: readonly ShortColumn<Stage>[] = [
  { title: "Stage", cell: ({ stage, rank }) => `${count(stage)} (rank ${count(rank)})` },
  { title: "Computing", className: NUMBER, cell: (row) => time(row.computing_us) },
  {
    title: "Bubble: warm-up",
    about: "Before its first micro-batch",
    className: NUMBER,
    cell: (row) => time(row.warm_up_us),
  },
  { title: "Between", className: NUMBER, cell: (row) => time(row.between_us) },
  {
    title: "Drain",
    about: "After its last micro-batch",
    className: NUMBER,
    cell: (row) => time(row.drain_us),
  },
];

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
      <ShortTable className="gd-table" columns={COLUMNS} rows={pipeline.ranks} />
    </Section>
  );
}
