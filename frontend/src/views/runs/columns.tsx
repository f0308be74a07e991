import { count, date, percent, plural, sentence, time } from "../../base/format";
import { GLOSSARY } from "../../base/vocabulary";
import { deltaOf } from "../../state/delta";
import {
  aboutRun,
  gainOfRow,
  isFolder,
  limiterText,
  partsOf,
  type Folder,
  type Line,
} from "../../state/runs";
import type { RunRow } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import { Bar } from "../parts/Bar";
import type { Column } from "../parts/DataTable";

/** Year 2000. Times before it are not times, but numbers in a file's name. */
const FIRST_RECORDING_S = 946_684_800;

/** Characters of a date, without the seconds. */
const TO_THE_MINUTE = 16;

/** The columns of the table of runs. Figures that a run does not have are left out, and sort last. */
const COLUMNS: readonly Column<RunRow>[] = [
  { id: "run", title: "Run", value: ({ run }) => run, cell: (row) => <Name row={row} /> },
  {
    id: "ranks",
    title: "Ranks",
    width: 54,
    figures: true,
    value: ({ ranks }) => ranks,
    cell: ({ ranks }) => count(ranks),
  },
  {
    id: "recordings",
    title: "Recordings",
    width: 82,
    figures: true,
    value: ({ recordings }) => recordings,
    cell: ({ recordings }) => count(recordings),
  },
  {
    id: "date",
    title: "Recorded",
    about: "When the newest recording was made",
    width: 146,
    figures: true,
    value: ({ time_s }) => (time_s > FIRST_RECORDING_S ? time_s : NaN),
    cell: ({ time_s }) =>
      time_s > FIRST_RECORDING_S && <span title={date(time_s)}>{date(time_s).slice(0, TO_THE_MINUTE)}</span>,
  },
  {
    id: "step",
    title: "Step",
    about: "Median step time ± half the interquartile range",
    width: 92,
    figures: true,
    value: ({ step_us }) => step_us || NaN,
    cell: (row) => <Step row={row} />,
  },
  {
    id: "busy",
    title: "GPU busy",
    ...(GLOSSARY["gpu busy"] === undefined ? {} : { about: GLOSSARY["gpu busy"] }),
    width: 84,
    figures: true,
    value: ({ busy_share }) => busy_share || NaN,
    cell: ({ busy_share }) => (busy_share > 0 ? percent(busy_share) : ""),
  },
  {
    id: "account",
    title: "Where time goes",
    about: "The step window by cause. Sorts by the share that is not computing.",
    width: 114,
    value: lostShare,
    cell: (row) => <Account row={row} />,
  },
  {
    id: "limiter",
    title: "Limited by, first finding",
    value: (row) => limiterText(row) || row.first_title,
    cell: (row) => <Limit row={row} />,
  },
  {
    id: "saving",
    title: "Gain",
    about: "The most that fixing the first finding can save, and the step time after that fix",
    width: 84,
    figures: true,
    value: ({ saving_share }) => saving_share || NaN,
    cell: (row) => <Gain row={row} />,
  },
  {
    id: "memory",
    title: "Free memory",
    about: "The share of the GPU's memory that was never reserved",
    width: 94,
    figures: true,
    value: ({ memory_share }) => (memory_share > 0 ? 1 - memory_share : NaN),
    cell: ({ memory_share }) => (memory_share > 0 ? percent(Math.max(0, 1 - memory_share)) : ""),
  },
  {
    id: "change",
    title: "Change since previous",
    about: "What changed between the two newest analyzed recordings of the same worker",
    width: 148,
    value: ({ change }) => change,
    cell: ({ change, recordings }) => (recordings > 1 ? <span title={change}>{sentence(change)}</span> : ""),
  },
];

/** The columns of runs. With the step time of a base, one more has the difference from it. */
export function runColumns(base_us: number): readonly Column<RunRow>[] {
  if (base_us <= 0) return COLUMNS;
  const fromBase: Column<RunRow> = {
    id: "base",
    title: "vs. base",
    about: "Median step time minus that of the base. Compare says whether the difference is more than noise.",
    width: 104,
    figures: true,
    value: ({ step_us }) => (step_us > 0 ? step_us - base_us : NaN),
    cell: ({ step_us }) =>
      step_us > 0 && <DeltaText delta={deltaOf(step_us, base_us, time)} base={time(base_us)} stacked />,
  };
  return COLUMNS.flatMap((column) => (column.id === "step" ? [column, fromBase] : [column]));
}

/** Room for a run's name, and for its limiter, in pixels. */
const LEAST_TEXT = 160;

/** The narrowest that the table can be without cutting off what is in it. */
export function leastWidth(columns: readonly Column<RunRow>[]): number {
  return columns.reduce((sum, { width = LEAST_TEXT }) => sum + width, 0);
}

/** The columns for rows and for the folders that they are in. */
export function lineColumns(columns: readonly Column<RunRow>[]): readonly Column<Line>[] {
  return columns.map((column) => ({
    ...column,
    value: (line) => (isFolder(line) ? (column.id === "run" ? line.folder : NaN) : column.value(line)),
    cell: (line) => (isFolder(line) ? folderCell(column.id, line) : column.cell(line)),
  }));
}

function folderCell(id: string, { folder, runs, saving_share, folded }: Folder) {
  if (id === "saving" && folded && saving_share > 0) return percent(saving_share);
  if (id !== "run") return "";
  return (
    <span className="gd-run-folder">
      <span aria-hidden="true">{folded ? "▸" : "▾"}</span> <b>{folder || "(no folder)"}</b>{" "}
      <span className="gd-muted">{plural(runs, "run")}</span>
      <span className="gd-unseen">{folded ? ", hidden" : ""}</span>
    </span>
  );
}

function Gain({ row }: { row: RunRow }) {
  const gain = gainOfRow(row);
  if (!gain) return null;
  return (
    <span className="gd-two">
      <span>≤ {gain.share}</span>
      {gain.after && <span>→ {gain.after}</span>}
    </span>
  );
}

function total_us({ account }: RunRow): number {
  return account.reduce((sum, { us }) => sum + us, 0);
}

function lostShare(row: RunRow): number {
  const computing = row.account.find(({ cause }) => cause === "computing")?.us ?? 0;
  return 1 - computing / total_us(row);
}

function Name({ row }: { row: RunRow }) {
  const about = aboutRun(row);
  return (
    <span className="gd-run-name" title={[row.run, row.worker, about].filter(Boolean).join("\n")}>
      <i className="gd-dot" data-state={row.state} />
      <span className="gd-two">
        <b>{row.run || "."}</b>
        <span>{about}</span>
      </span>
    </span>
  );
}

function Step({ row: { step_us, low_step_us, high_step_us } }: { row: RunRow }) {
  if (step_us <= 0) return null;
  return (
    <span className="gd-two">
      <span>{time(step_us)}</span>
      {high_step_us > low_step_us && <span>± {time((high_step_us - low_step_us) / 2)}</span>}
    </span>
  );
}

function Account({ row }: { row: RunRow }) {
  if (row.account.length === 0) return null;
  return <Bar parts={partsOf(row.account)} whole_us={total_us(row)} label={row.run} />;
}

function Limit({ row }: { row: RunRow }) {
  const { first_title, first_rule, sentence: said, error, state } = row;
  if (state === "failed") {
    return <span className="gd-run-problem">{sentence(error?.what ?? "")}</span>;
  }
  const limited = limiterText(row);
  const text = [first_rule && `${first_rule}: ${first_title}`, said].filter(Boolean).join("\n");
  return (
    <span className="gd-two" title={text}>
      <b>{limited || first_title}</b>
      <span>{limited && first_title}</span>
    </span>
  );
}
