import { Button, CloseButton, TextInput } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useEffect, useMemo, useRef } from "react";
import { count, plural } from "../../base/format";
import { runName } from "../../state/choose";
import { useBaseFigures } from "../../state/base";
import { useRuns } from "../../state/queries";
import {
  filteredRuns,
  foldRuns,
  groupedRuns,
  isFolder,
  queuePlaces,
  useRunsTable,
  worstOf,
} from "../../state/runs";
import type { Line, Worst } from "../../state/runs";
import type { RunRow } from "../../wire/report";
import { ordered, type Order } from "../../base/sorting";
import { usePage } from "../../state/store";
import { DataTable, type Column } from "../parts/DataTable";
import { Notice } from "../parts/Notice";
import { Section } from "../parts/Section";
import { Waiting } from "../status/Waiting";
import type { Dragging } from "../parts/useDragging";
import { isComparable, leastWidth, lineColumns, NO_PLACES, QueuePlaces, runColumns } from "./columns";
import { useAnalyses, type Analyses } from "./useAnalyses";

const NONE: readonly RunRow[] = [];

/** What a phone has room for. */
const ON_PHONE: ReadonlySet<string> = new Set(["run", "severity", "limiter"]);

/** Two lines of text. */
const ROW_PX = 46;

/** Sort the rows, and group them if folders are given. */
function arranged(
  rows: readonly RunRow[],
  columns: readonly Column<RunRow>[],
  order: Order,
  folded: ReadonlySet<string> | null,
): readonly Line[] {
  const by = columns.find(({ id }) => id === order.by);
  const inOrder = by ? ordered(rows, by.value, order.descending) : rows;
  return folded ? groupedRuns(inOrder, folded) : inOrder;
}

/** "Analyzing 3 of 40 runs, about 2 min left", "40 runs, the worst first", "3 of 40 runs". */
function summary(
  shown: number,
  total: number,
  search: string,
  { by, descending }: Order,
  { on, left, left_s }: Analyses,
): string {
  const all = plural(total, "run");
  if (search.trim() !== "") return `${count(shown)} of ${all}`;
  if (on && left > 0) {
    const rest = left_s === null ? "" : `, ${aboutSeconds(left_s)} left`;
    return `Analyzing ${count(total - left + 1)} of ${all}${rest}`;
  }
  return by === "severity" && descending ? `${all}, the worst first` : all;
}

/** "about 40 s", "about 2 min". */
function aboutSeconds(s: number): string {
  return s >= 90 ? `about ${count(Math.round(s / 60))} min` : `about ${count(10 * Math.ceil(s / 10))} s`;
}

function openRun({ id, kind, trace_id }: RunRow): void {
  useRunsTable.setState({ opened: id });
  usePage.getState().openTab(kind === "job" ? "job" : "summary", trace_id);
}

function WorstRun({ worst }: { worst: Worst | null }) {
  if (!worst) return null;
  const { row, of } = worst;
  return (
    <p className="gd-worst">
      Worst of {plural(of, "analyzed run")}:{" "}
      <button type="button" className="gd-link" onClick={() => openRun(row)}>
        {runName(row.run)}
      </button>
      . {row.why}.
    </p>
  );
}

/** All runs of the log directory, the most urgent ones first. */
export default function Runs() {
  const { data, error, dataUpdatedAt } = useRuns();
  const { order, opened, top, grouped, folded } = useRunsTable();
  const search = usePage((page) => page.filter);
  const filter = usePage((page) => page.filterRuns);
  const rows = useMemo(() => filteredRuns(data?.rows ?? [], search), [data, search]);
  const worst = useMemo(() => worstOf(rows), [rows]);
  const analyses = useAnalyses(data && !data.more ? data.rows : NONE, rows, dataUpdatedAt);
  const places = useMemo(() => (analyses.on ? queuePlaces(rows) : NO_PLACES), [analyses.on, rows]);
  const table = useOpenedRow();
  const dragging = useCompareByDragging();
  const folders = data?.folders ?? false;
  const byFolder = grouped ?? folders;
  const { columns, minWidth } = useColumns(data?.rows ?? NONE);
  const shown = useMemo(() => lineColumns(columns, byFolder), [columns, byFolder]);
  const lines = useMemo(
    () => arranged(rows, columns, order, byFolder ? folded : null),
    [rows, columns, order, byFolder, folded],
  );
  if (!data) {
    return error ? (
      <Notice tone="error">Could not load the runs: {error.message}.</Notice>
    ) : (
      <Waiting>Looking for traces in the log directory…</Waiting>
    );
  }
  return (
    <Section
      title="Runs"
      aside={
        <div className="gd-controls">
          <span className="gd-muted" role="status">
            {summary(rows.length, data.total, search, order, analyses)}
          </span>
          {analyses.left > 0 && <Analyze {...analyses} />}
          {(folders || grouped) && (
            <Button
              size="compact-xs"
              variant={byFolder ? "light" : "default"}
              aria-pressed={byFolder}
              onClick={() => useRunsTable.setState({ grouped: !byFolder })}
            >
              By folder
            </Button>
          )}
          <TextInput
            size="xs"
            w={260}
            aria-label="Filter runs"
            placeholder="Filter by name, bottleneck, finding…"
            value={search}
            onChange={(event) => {
              filter(event.currentTarget.value);
              useRunsTable.setState({ top: 0 });
            }}
            rightSection={
              search !== "" && (
                <CloseButton size="xs" aria-label="Clear the filter" onClick={() => filter("")} />
              )
            }
          />
        </div>
      }
    >
      {rows.length === 0 ? (
        <p className="gd-nothing">No run matches the filter.</p>
      ) : (
        <div ref={table}>
          <WorstRun worst={worst} />
          <QueuePlaces value={places}>
            <DataTable
              label="Runs"
              columns={shown}
              rows={lines}
              saves={(line) => !isFolder(line)}
              arranged
              rowKey={(line) => (isFolder(line) ? `folder ${line.folder}` : line.id)}
              order={order}
              onOrder={(next) => useRunsTable.setState({ order: next })}
              rowHeight={ROW_PX}
              maxHeight="calc(100vh - 182px)"
              minWidth={minWidth}
              scroll={{
                top,
                onScroll: (now) => useRunsTable.setState({ top: now }),
              }}
              onOpen={(line) => {
                if (isFolder(line)) foldRuns(line.folder);
                else openRun(line);
              }}
              isOpen={(line) => !isFolder(line) && line.id === opened}
              dragging={dragging}
            />
          </QueuePlaces>
        </div>
      )}
    </Section>
  );
}

function useColumns(rows: readonly RunRow[]) {
  const base_us = useBaseFigures()?.step_us ?? 0;
  const phone = useMediaQuery("(max-width: 640px)");
  return useMemo(() => {
    const all = runColumns(base_us, rows);
    return phone
      ? { columns: all.filter(({ id }) => ON_PHONE.has(id)), minWidth: 0 }
      : { columns: all, minWidth: leastWidth(all) };
  }, [base_us, rows, phone]);
}

/** A run that is dropped on another is compared with it. The column does the same by keyboard. */
function useCompareByDragging(): Dragging<Line> {
  const compare = usePage((page) => page.compare);
  return useMemo(
    () => ({
      can: (line) => !isFolder(line) && isComparable(line),
      name: (line) => (isFolder(line) ? line.folder : runName(line.run)),
      onDrop: (line, onto) => {
        if (!isFolder(line) && !isFolder(onto)) compare(onto.trace_id, line.trace_id);
      },
    }),
    [compare],
  );
}

/** Back in the table, the focus is where it was. */
function useOpenedRow() {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (document.activeElement === document.body)
      box.current?.querySelector<HTMLElement>("tr[aria-current] .gd-open")?.focus({ preventScroll: true });
  }, []);
  return box;
}

function Analyze({ left, on, toggle }: Analyses) {
  return (
    <Button
      size="compact-xs"
      variant="default"
      title="Analyzes the newest recording of each run while this view is open, those at the top first"
      onClick={toggle}
    >
      {on ? "Stop" : `Analyze ${count(left)} new`}
    </Button>
  );
}
