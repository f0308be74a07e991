import { useMemo, useState } from "react";
import { date, plural, sentence } from "../../base/format";
import { useBaseFigures } from "../../state/base";
import { curvesOf, type Curves } from "../../state/history";
import { useHistory } from "../../state/queries";
import { usePage } from "../../state/store";
import { contentsOf } from "../../state/views";
import type { History, TraceEntry } from "../../wire/report";
import { Section } from "../parts/Section";
import { Answer } from "../status/Answer";
import { Problem } from "../status/Problem";
import { Changes } from "./Changes";
import { CurveSection } from "./CurveSection";
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
      {(history) => <Shown history={history} />}
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

const HELP =
  "by recording. Left and right arrow keys move between recordings, Enter opens one. The table below has the same figures.";

interface ChartProps {
  readonly history: History;
  readonly curves: Curves;
  readonly at: number | null;
  readonly onPoint: (at: number | null) => void;
  readonly onOpen: (at: number) => void;
}

function Chart({ history: { points, changes }, curves, at, onPoint, onOpen }: ChartProps) {
  const labels = useMemo(() => points.map(({ time_s }) => date(time_s).slice(5)), [points]);
  const marks = useMemo(() => changes.map(({ point }) => point), [changes]);
  const point = at === null ? undefined : points[at];
  return (
    <CurveSection
      curves={curves}
      labels={labels}
      marks={marks}
      at={at}
      name={date(point?.time_s ?? 0)}
      hint={`${plural(points.length, "recording")}. Click one to open it.`}
      help={HELP}
      onPoint={onPoint}
      onOpen={onOpen}
    />
  );
}
