import { useMemo, useState } from "react";
import { partLabel } from "../../base/causes";
import { date, plural, sentence } from "../../base/format";
import { useBaseFigures } from "../../state/base";
import { curvesOf, valueText, type Curves } from "../../state/history";
import { useHistory } from "../../state/queries";
import { usePage } from "../../state/store";
import { contentsOf } from "../../state/views";
import type { History, TraceEntry } from "../../wire/report";
import { CauseSwatch } from "../parts/CauseSwatch";
import { Section } from "../parts/Section";
import { Answer } from "../status/Answer";
import { Problem } from "../status/Problem";
import { Changes } from "./Changes";
import { CurveChart } from "./CurveChart";
import { PastGains } from "./PastGains";
import { Recordings } from "./Recordings";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** The recordings of the run of the trace on the page, in the order of time. */
export default function HistoryView({ traces, entry }: Props) {
  const contents = contentsOf(traces.filter(({ run }) => run === entry.run));
  const { data, error } = useHistory(entry.run, contents);
  return (
    <Answer
      doing="Reading the recordings of this run"
      failed="This run has no history"
      state={data}
      error={error}
      answer={data?.history}
    >
      {(history) => (
        <>
          <Shown history={history} />
          <PastGains ledger={data?.ledger} />
        </>
      )}
    </Answer>
  );
}

function Shown({ history }: { history: History }) {
  const openTab = usePage((page) => page.openTab);
  const [at, setAt] = useState<number | null>(null);
  const base = useBaseFigures();
  const curves = useMemo(() => curvesOf(history, base), [history, base]);
  const { points, problems, notes } = history;
  const open = (index: number) => {
    const point = points[index];
    if (point) openTab("summary", point.id);
  };
  const chart = { history, at, onPoint: setAt, onOpen: open };
  return (
    <>
      {problems.map((problem, index) => (
        <Problem key={index} title="A recording cannot be read" problem={problem} />
      ))}
      <Changes history={history} onOpen={open} />
      {curves.map((curve) => (
        <Chart key={curve.title} curves={curve} {...chart} />
      ))}
      <Recordings points={points} onOpen={open} />
      {notes.length > 0 && (
        <Section title="Notes">
          <ul className="gd-notes">
            {notes.map((note, index) => (
              <li key={index}>{sentence(note)}</li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

interface ChartProps {
  readonly history: History;
  readonly curves: Curves;
  readonly at: number | null;
  readonly onPoint: (at: number | null) => void;
  readonly onOpen: (at: number) => void;
}

function Chart({ history: { points, changes }, curves, at, onPoint, onOpen }: ChartProps) {
  const scheme = usePage((page) => page.scheme);
  const labels = useMemo(() => points.map(({ time_s }) => date(time_s).slice(5)), [points]);
  const marks = useMemo(() => changes.map(({ point }) => point), [changes]);
  const point = at === null ? undefined : points[at];
  const drawn = { curves, scheme, labels, changes: marks, at };
  return (
    <Section title={curves.title} aside={<span className="gd-muted">{curves.about}</span>}>
      <CurveChart drawn={drawn} onPoint={onPoint} onOpen={onOpen} />
      <Legend curves={curves} />
      <p className="gd-curve-text" role="status">
        {point
          ? `${date(point.time_s)}: ${readings(curves, at ?? 0)}`
          : `${plural(points.length, "recording")}. Click one to open it.`}{" "}
        {sentence(
          (curves.base ?? [])
            .map(({ name, value }) => `${name}: ${valueText(curves.unit, value)}`)
            .join(", "),
        )}
      </p>
    </Section>
  );
}

/** The values of one recording: "median 12.3 ms, upper quartile 13 ms". Stacked ones are read in the table. */
function readings({ lines, unit }: Curves, at: number): string {
  const stacked = lines.some(({ filled }) => filled);
  return lines
    .flatMap(({ name, values }, index) => {
      const value = values[at] ?? 0;
      const below = stacked ? (lines[index + 1]?.values[at] ?? 0) : 0;
      return value > below
        ? [`${stacked ? partLabel(name).toLowerCase() : name} ${valueText(unit, value - below)}`]
        : [];
    })
    .join(", ");
}

function Legend({ curves: { lines } }: { curves: Curves }) {
  const scheme = usePage((page) => page.scheme);
  const shown = lines.filter(({ edge }) => !edge);
  if (shown.length < 2) return null;
  const stacked = shown.some(({ filled }) => filled);
  return (
    <ul className="gd-curve-legend" aria-label="Legend">
      {(stacked ? shown.toReversed() : shown).map(({ name, color }) => (
        <li key={name}>
          {stacked ? (
            <CauseSwatch name={name} />
          ) : (
            <span className="gd-swatch" style={{ background: color(scheme) }} aria-hidden="true" />
          )}
          {stacked ? partLabel(name) : name}
        </li>
      ))}
    </ul>
  );
}
