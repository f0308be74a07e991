import { Button } from "@mantine/core";
import { createContext, use } from "react";
import { bytes, date, percent, plural, sentence, time } from "../../base/format";
import { GLOSSARY, SEVERITIES } from "../../base/vocabulary";
import { runName } from "../../state/choose";
import { deltaOf } from "../../state/delta";
import { withoutRate } from "../../state/findings";
import {
  aboutRun,
  gainOfRow,
  isFolder,
  limiterText,
  partsOf,
  severityOf,
  useRunsTable,
  type Folder,
  type Line,
} from "../../state/runs";
import { usePage } from "../../state/store";
import { Finding_Severity, type RunRow } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import { Bar } from "../parts/Bar";
import type { Column } from "../parts/DataTable";
import { Cut } from "../parts/Cut";
import { Separated } from "../parts/Separated";

/** Year 2000. Times before it are not times, but numbers in a file's name. */
const FIRST_RECORDING_S = 946_684_800;

/** Characters of a date, without the time. */
const TO_THE_DAY = 10;

export const NO_PLACES: ReadonlyMap<string, string> = new Map();

/** What is said of each run that waits, by id. */
export const QueuePlaces = createContext(NO_PLACES);

interface RunColumn extends Column<RunRow> {
  /** Whether the column says something about a run. If it says nothing about any, it is left out. */
  readonly says?: (row: RunRow) => boolean;
}

/** The columns of the table of runs. Figures that a run does not have are left out, and sort last. */
const COLUMNS: readonly RunColumn[] = [
  { id: "run", title: "Run", value: ({ run }) => run, cell: (row) => <Name row={row} /> },
  {
    id: "severity",
    title: "Severity",
    about: "Of the worst finding. Equal ones are sorted by what the first fix saves for sure.",
    width: 84,
    figures: true,
    value: severityOf,
    fileValue: (row) => severityWord(severityOf(row)),
    cell: (row) => <SeverityMark severity={severityOf(row)} />,
  },
  {
    id: "compare",
    title: "Compare",
    about: "Check the earlier run, then compare another one with it; or drag one onto the other",
    width: 94,
    unsorted: true,
    says: isComparable,
    value: () => "",
    cell: (row) => isComparable(row) && <CompareBox row={row} />,
  },
  // People read these next to the run's name. Files have them as columns.
  { id: "ranks", title: "Ranks", saved: true, value: ({ ranks }) => ranks, cell: () => null },
  {
    id: "recordings",
    title: "Recordings",
    saved: true,
    value: ({ recordings }) => recordings,
    cell: () => null,
  },
  {
    id: "date",
    title: "Recorded",
    unit: "date",
    about: "When the newest recording was made",
    width: 102,
    figures: true,
    value: ({ time_s }) => (time_s > FIRST_RECORDING_S ? time_s : NaN),
    cell: ({ time_s }) =>
      time_s > FIRST_RECORDING_S && <span title={date(time_s)}>{date(time_s).slice(0, TO_THE_DAY)}</span>,
  },
  {
    id: "step",
    title: "Step ± spread",
    fileTitle: "Step",
    unit: "µs",
    about: "Median step time. Half of the steps differ from it by about the spread or less.",
    width: 106,
    figures: true,
    value: ({ step_us }) => step_us || NaN,
    cell: (row) => <Step row={row} />,
  },
  {
    id: "busy",
    title: "GPU busy",
    unit: "share",
    ...(GLOSSARY["gpu busy"] === undefined ? {} : { about: GLOSSARY["gpu busy"] }),
    width: 78,
    figures: true,
    says: ({ busy_share }) => busy_share > 0,
    value: ({ busy_share }) => busy_share || NaN,
    cell: ({ busy_share }) => (busy_share > 0 ? percent(busy_share) : ""),
  },
  {
    id: "account",
    title: "Where time goes",
    fileTitle: "Not computing",
    unit: "share",
    about: "The step window by cause. Sorts by the share that is not computing.",
    width: 116,
    value: lostShare,
    cell: (row) => <Account row={row} />,
  },
  {
    id: "limiter",
    title: "Bottleneck, first finding",
    value: (row) => limiterText(row) || row.first_title,
    cell: (row) => <Limit row={row} />,
  },
  {
    id: "saving",
    title: "First fix saves",
    unit: "share",
    about: "What fixing the first finding saves of the step, and the step time after it",
    width: 132,
    figures: true,
    says: ({ saving_share }) => saving_share > 0,
    value: ({ low_saving_share, saving_share }) => (saving_share > 0 ? low_saving_share : NaN),
    cell: (row) => <Gain row={row} />,
  },
  {
    id: "memory",
    title: "Memory",
    about:
      "How much more is allocated after each step: a leak, if it goes on. Below it, the share of the GPU's memory that was never reserved.",
    width: 120,
    figures: true,
    fileTitle: "Memory grows",
    unit: "bytes per step",
    says: ({ growth_bytes_per_step: growth, memory_share }) => growth > 0 || memory_share > 0,
    value: ({ growth_bytes_per_step: growth }) => growth || NaN,
    cell: (row) => <Memory row={row} />,
  },
  {
    id: "free",
    title: "Free memory",
    unit: "share",
    saved: true,
    value: freeShare,
    cell: () => null,
  },
  {
    id: "change",
    title: "Since previous",
    about: "What changed between the two newest analyzed recordings of the same worker",
    width: 130,
    says: ({ change }) => change !== "",
    value: ({ change }) => change,
    cell: ({ change, recordings }) => (recordings > 1 ? <span title={change}>{sentence(change)}</span> : ""),
  },
];

/** The columns that say something about these rows. With a base's step time, one has the difference from it. */
export function runColumns(base_us: number, rows: readonly RunRow[]): readonly Column<RunRow>[] {
  const columns = COLUMNS.filter(({ says }) => !says || rows.some(says));
  if (base_us <= 0) return columns;
  const fromBase: Column<RunRow> = {
    id: "base",
    title: "vs. base",
    unit: "µs",
    about: "Median step time minus that of the base. Compare says whether the difference is more than noise.",
    width: 104,
    figures: true,
    value: ({ step_us }) => (step_us > 0 ? step_us - base_us : NaN),
    cell: ({ step_us }) =>
      step_us > 0 && <DeltaText delta={deltaOf(step_us, base_us, time)} base={time(base_us)} stacked />,
  };
  return columns.flatMap((column) => (column.id === "step" ? [column, fromBase] : [column]));
}

/** Room for a run's name, and for its limiter, in pixels. */
const LEAST_TEXT = 148;

/** The narrowest that the table can be without cutting off what is in it. */
export function leastWidth(columns: readonly Column<RunRow>[]): number {
  return columns.reduce((sum, { width = LEAST_TEXT, saved }) => sum + (saved ? 0 : width), 0);
}

/** The columns for rows and for the folders that they are in. */
export function lineColumns(columns: readonly Column<RunRow>[], inFolders: boolean): readonly Column<Line>[] {
  return columns.map((column) => ({
    ...column,
    value: (line) => (isFolder(line) ? (column.id === "run" ? line.folder : NaN) : column.value(line)),
    // Files have no folders.
    fileValue: (line) => (isFolder(line) ? NaN : (column.fileValue ?? column.value)(line)),
    cell: (line) => {
      if (isFolder(line)) return folderCell(column.id, line);
      return inFolders && column.id === "run" ? <Name row={line} inFolder /> : column.cell(line);
    },
  }));
}

function folderCell(id: string, { folder, runs, severity, folded }: Folder) {
  if (id === "severity" && folded) return <SeverityMark severity={severity} />;
  if (id !== "run") return "";
  return (
    <span className="gd-run-folder">
      <span aria-hidden="true">{folded ? "▸" : "▾"}</span> <b>{runName(folder)}</b>{" "}
      <span className="gd-muted">{plural(runs, "run")}</span>
      <span className="gd-unseen">{folded ? ", hidden" : ""}</span>
    </span>
  );
}

export function isComparable({ kind, state }: RunRow): boolean {
  return kind === "trace" && state !== "failed";
}

/** Checks a run, or compares it with the one that is checked. */
function CompareBox({ row }: { row: RunRow }) {
  const { run, trace_id } = row;
  const base = useRunsTable((table) => table.base);
  const compare = usePage((page) => page.compare);
  const chosen = base?.trace_id === trace_id;
  if (base && !chosen) {
    const go = () => {
      useRunsTable.setState({ base: null });
      compare(base.trace_id, trace_id);
    };
    return (
      <Button
        size="compact-xs"
        variant="light"
        aria-label={`Compare ${runName(run)} with ${runName(base.run)}`}
        onClick={go}
      >
        Compare
      </Button>
    );
  }
  return (
    <label className="gd-check">
      <input
        type="checkbox"
        aria-label={`Compare ${runName(run)}`}
        checked={chosen}
        onChange={() => useRunsTable.setState({ base: chosen ? null : row })}
      />
    </label>
  );
}

/** By their numbers. */
const LEVELS = [Finding_Severity.INFO, Finding_Severity.WARNING, Finding_Severity.ERROR] as const;

/** NaN: not known; -1: no finding. */
function severityWord(severity: number): string {
  if (Number.isNaN(severity)) return "";
  const name = LEVELS[severity];
  return name ? SEVERITIES[name].word : "none";
}

function SeverityMark({ severity }: { severity: number }) {
  const name = LEVELS[severity];
  const word = severityWord(severity);
  return name ? (
    <span data-severity={name}>
      <span className="gd-severity" title={SEVERITIES[name].explanation}>
        {word}
      </span>
    </span>
  ) : (
    <span className="gd-muted">{word}</span>
  );
}

function Gain({ row }: { row: RunRow }) {
  const gain = gainOfRow(row);
  if (!gain) return null;
  return (
    <span className="gd-two">
      <span>{gain.share}</span>
      {gain.after && <span>→ {gain.after}</span>}
    </span>
  );
}

/** NaN: not known. */
function freeShare({ memory_share }: RunRow): number {
  return memory_share > 0 ? Math.max(0, 1 - memory_share) : NaN;
}

function Memory({ row }: { row: RunRow }) {
  const { growth_bytes_per_step: growth } = row;
  const free = freeShare(row);
  return (
    <span className="gd-two">
      {growth > 0 && <span>+{bytes(growth)}/step</span>}
      {!Number.isNaN(free) && <span>{percent(free)} free</span>}
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

/** In its folder, a run does not repeat the folder's name. */
function Name({ row, inFolder = false }: { row: RunRow; inFolder?: boolean }) {
  const about = aboutRun(row, use(QueuePlaces).get(row.id));
  const name = runName(inFolder ? row.run.slice(row.run.lastIndexOf("/") + 1) : row.run);
  return (
    <span className="gd-run-name" title={[row.run, row.worker, about].filter(Boolean).join("\n")}>
      <i className="gd-dot" data-state={row.state} />
      {about ? (
        <span className="gd-two">
          <b>
            <Cut text={name} isPath />
          </b>
          <span>{about}</span>
        </span>
      ) : (
        <b className="gd-run-text">
          <Separated name={name} />
        </b>
      )}
    </span>
  );
}

function Step({ row: { step_us, low_step_us, high_step_us } }: { row: RunRow }) {
  if (step_us <= 0) return null;
  return (
    <span className="gd-two">
      <span>{time(step_us)}</span>
      {high_step_us > low_step_us && (
        <span title={`Half of the steps take ${time(low_step_us)} to ${time(high_step_us)}`}>
          ± {time((high_step_us - low_step_us) / 2)}
        </span>
      )}
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
  const title = withoutRate(first_title); // another column has it
  const text = [first_rule && `${first_rule}: ${first_title}`, said].filter(Boolean).join("\n");
  return (
    <span className="gd-two" title={text}>
      <b>{limited || title}</b>
      <span>{limited && title}</span>
    </span>
  );
}
