import { Button } from "@mantine/core";
import { useMemo, useState } from "react";
import { count, percent, plural, sentence, time } from "../../base/format";
import { word } from "../../base/terms";
import { CLOCK_PHASES } from "../../base/vocabulary";
import { binOf, clockCurves, recordedTogether, stepsOf, zoomed, type StepSpan } from "../../state/clock";
import { useClock } from "../../state/clockQuery";
import type { ClockPhase, ClockRank, ClockReport, ClockSlice, TraceEntry } from "../../wire/report";
import { CurveSection } from "../history/CurveSection";
import type { ReportProps } from "../parts/reportProps";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";
import { Problem } from "../status/Problem";
import { Waiting } from "../status/Waiting";
import { ClockRecordings } from "./ClockRecordings";

const FIRST = 20;

const PHASES: readonly ShortColumn<ClockPhase>[] = [
  {
    title: "Phase",
    heads: true,
    cell: ({ name }) => (
      <span title={(CLOCK_PHASES as Record<string, { explanation: string }>)[name]?.explanation}>
        {word(CLOCK_PHASES, name)}
      </span>
    ),
  },
  { title: "Median", className: "gd-number", cell: ({ us }) => time(us) },
  { title: "Share of the step", className: "gd-number", cell: ({ share }) => percent(share) },
];

/** How long the steps of a run took, by what the step clocks of its ranks wrote. */
export default function ClockView({ entry, report: { clock, verdict } }: ReportProps) {
  const [rank, setRank] = useState<number | null>(null);
  const [span, setSpan] = useState<StepSpan | null>(null);
  const ranks = clock?.ranks ?? [];
  const chosen = ranks.find((one) => one.rank === rank) ?? slowest(ranks);
  if (!clock || !chosen) return null;
  return (
    <>
      <section className="gd-card gd-verdict" aria-label="Verdict">
        <div className="gd-verdict-head">
          <span className="gd-over">Step clock</span>
          <h1>{verdict?.headline}</h1>
        </div>
        <p>{clock.sentence}</p>
      </section>
      {ranks.length > 1 && <Ranks ranks={ranks} chosen={chosen} onChoose={setRank} />}
      <Curves entry={entry} clock={clock} rank={chosen} span={span} onSpan={setSpan} />
      {chosen.phases.length > 0 && (
        <Section
          title={`Phases${of(ranks, chosen)}`}
          aside={<span className="gd-muted">of the steps whose phases were timed</span>}
        >
          <ShortTable className="gd-table" label="Phases" columns={PHASES} rows={chosen.phases} />
        </Section>
      )}
      <ClockRecordings entry={entry} recordings={clock.recordings} />
      {clock.notes.length > 0 && (
        <Section title="Notes">
          <ul className="gd-notes">
            {clock.notes.map((note, at) => (
              <li key={at}>{sentence(note)}</li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

/** The rank to show first: one that drifted and does not only wait, else the first. */
function slowest(ranks: readonly ClockRank[]): ClockRank | undefined {
  const drifted = ranks.filter(({ drift }) => drift !== "");
  return drifted.find(({ drift }) => !drift.includes("(wait)")) ?? drifted[0] ?? ranks[0];
}

function of(ranks: readonly ClockRank[], { rank }: ClockRank): string {
  return ranks.length > 1 ? ` of rank ${rank}` : "";
}

interface RanksProps {
  readonly ranks: readonly ClockRank[];
  readonly chosen: ClockRank;
  readonly onChoose: (rank: number) => void;
}

function Ranks({ ranks, chosen, onChoose }: RanksProps) {
  const columns: readonly ShortColumn<ClockRank>[] = [
    {
      title: "Rank",
      heads: true,
      cell: ({ rank }) => (
        <button
          type="button"
          className="gd-link"
          aria-pressed={rank === chosen.rank}
          aria-label={`Show rank ${rank}`}
          onClick={() => {
            onChoose(rank);
          }}
        >
          {rank}
        </button>
      ),
    },
    { title: "Steps", className: "gd-number", cell: ({ steps }) => count(steps) },
    { title: "Median", className: "gd-number", cell: ({ step_us }) => time(step_us) },
    { title: "Now", className: "gd-number", cell: ({ now_us }) => (now_us > 0 ? time(now_us) : "") },
    { title: "Drift", className: "gd-name", cell: ({ drift }) => drift && sentence(drift) },
  ];
  return (
    <Section title="Ranks" aside={<span className="gd-muted">choose one to see its steps below</span>}>
      <ShortTable
        className="gd-table gd-clock-ranks"
        label="Ranks"
        box="Ranks"
        columns={columns}
        rows={ranks}
        first={FIRST}
        isMarked={({ rank }) => rank === chosen.rank}
      />
    </Section>
  );
}

interface CurvesProps {
  readonly entry: TraceEntry;
  readonly clock: ClockReport;
  readonly rank: ClockRank;
  readonly span: StepSpan | null;
  readonly onSpan: (span: StepSpan | null) => void;
}

function Curves({ entry, clock, rank, span, onSpan }: CurvesProps) {
  const { data, error } = useClock(entry, rank.rank, span);
  if (data?.error) return <Problem title="These steps cannot be shown" problem={data.error} />;
  if (data?.state !== "ready") return error === null && <Waiting>Loading the steps…</Waiting>;
  return <Charts slice={data} clock={clock} span={span} onSpan={onSpan} />;
}

const HELP =
  "by step. Left and right arrow keys move over the steps, Enter zooms in. The tables have the figures of the whole run.";

const ZOOM = "Click to zoom in.";
const NUMBERS = "Numbers are recordings, which are listed below.";

type ChartsProps = Pick<CurvesProps, "clock" | "span" | "onSpan"> & { readonly slice: ClockSlice };

function Charts({ slice, clock, span, onSpan }: ChartsProps) {
  const [at, setAt] = useState<number | null>(null);
  const curves = useMemo(() => clockCurves(slice), [slice]);
  const labels = useMemo(() => slice.step.map(count), [slice]);
  const marks = useMemo(
    () => recordedTogether(clock.recordings).map(({ step }) => binOf(slice, step)),
    [slice, clock.recordings],
  );
  const point = at === null || at >= slice.step.length ? null : at;
  const shown = ranksText(slice, clock);
  const open = (bin: number) => {
    const nearer = zoomed(slice, stepsOf(slice, bin).start);
    if (nearer) {
      setAt(null);
      onSpan(nearer);
    }
  };
  return (
    <>
      <div className="gd-clock-shown" role="status">
        {shown}
        {span && (
          <Button
            size="compact-sm"
            variant="default"
            onClick={() => {
              onSpan(null);
            }}
          >
            Whole run
          </Button>
        )}
      </div>
      {curves.map((one) => (
        <CurveSection
          key={one.title}
          curves={one}
          labels={labels}
          marks={marks}
          at={point}
          name={point === null ? "" : binText(slice, point)}
          hint={marks.some((mark) => !Number.isNaN(mark)) ? `${ZOOM} ${NUMBERS}` : ZOOM}
          help={HELP}
          onPoint={setAt}
          onOpen={open}
        />
      ))}
    </>
  );
}

/** "Rank 1, steps 0 to 29,999: each point of the curves is 30 steps." */
function ranksText(slice: ClockSlice, { ranks }: ClockReport): string {
  const { start, end } = stepsOf(slice, 0);
  const whose = ranks.length > 1 ? `Rank ${slice.rank}, steps` : "Steps";
  return `${whose} ${count(start)} to ${count(slice.end_step - 1)}. A point is ${plural(end - start, "step")}.`;
}

function binText(slice: ClockSlice, bin: number): string {
  const { start, end } = stepsOf(slice, bin);
  return end - start > 1 ? `Steps ${count(start)} to ${count(end - 1)}` : `Step ${count(start)}`;
}
