import { count } from "../../base/format";
import { curveValue } from "../../canvas/queue";
import type { Counter } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const COLUMNS: readonly ShortColumn<Counter>[] = [
  { title: "Counter", heads: true, cell: ({ name }) => name },
  { title: "Device", cell: ({ device }) => (device < 0 ? "" : `GPU ${device}`) },
  {
    title: "Samples",
    cell: ({ samples, timed }) => `${count(samples)}${timed ? "" : " ranges, without times"}`,
  },
  { title: "Min", cell: ({ least, unit }) => curveValue("counter", least, unit) },
  { title: "Mean", cell: ({ mean, unit }) => curveValue("counter", mean, unit) },
  { title: "Max", cell: ({ most, unit }) => curveValue("counter", most, unit) },
];

/** The counters of the trace, such as clocks and power, with their range of values. */
export function Counters({ counters }: { counters: readonly Counter[] }) {
  if (counters.length === 0) return null;
  return (
    <Section title="Counters">
      <p className="gd-nothing">The timeline shows each counter as a curve below the lanes of its GPU.</p>
      <ShortTable className="gd-plain gd-recording" columns={COLUMNS} rows={counters} />
    </Section>
  );
}
