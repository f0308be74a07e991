import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { insteadOf, newest } from "../state/choose";
import { useRuns, useTraces } from "../state/queries";
import { usePage } from "../state/store";
import { firstView, viewsFor } from "../state/views";
import type { ViewName } from "../base/hash";
import { isEmbedded } from "../wire/client";
import type { TraceEntry, TraceList } from "../wire/report";
import { BaseBar } from "./base/BaseBar";
import { Chooser } from "./chooser/Chooser";
import { Empty } from "./empty/Empty";
import { Notice } from "./parts/Notice";
import { RulePanel } from "./rule/RulePanel";
import { Problem } from "./status/Problem";
import { Waiting } from "./status/Waiting";
import { Tabs } from "./tabs/Tabs";
import { Trace } from "./Trace";

// Loaded when they are opened, so that the page appears as fast as without them.
const Compare = lazy(() => import("./compare/Compare"));
const HistoryView = lazy(() => import("./history/HistoryView"));
const Job = lazy(() => import("./job/Job"));
const loadRuns = () => import("./runs/Runs");
const Runs = lazy(loadRuns);

const NO_TRACES: readonly TraceEntry[] = [];

export function Page() {
  const tab = usePage((page) => page.tab);
  const undecided = usePage((page) => page.tab === null && page.trace === null) && !isEmbedded();
  const runsFirst = tab === "runs" || undecided;
  const runs = useRuns(runsFirst);
  useEffect(() => {
    // While the rows are on their way. If this fails, opening the view says so.
    if (runsFirst) loadRuns().catch(() => undefined);
  }, [runsFirst]);
  // The server takes as long for a list of thousands of traces as for the table of runs, so the list waits.
  const { data, isError } = useTraces(!runsFirst || runs.data?.more === false || runs.isError);
  const failed = isError || (runsFirst && runs.isError);
  const list = data && (data.scanned || data.traces.length > 0) ? data : null;
  const hasRuns = runsFirst && (runs.data?.total ?? 0) > (undecided ? 1 : 0);
  return (
    <div className="gd-page">
      {failed && <Notice tone="warning">TensorBoard is not responding. Retrying…</Notice>}
      {list || hasRuns ? (
        <Listed list={list} />
      ) : (
        !failed && <Waiting>Looking for traces in the log directory…</Waiting>
      )}
    </div>
  );
}

/** The page; `list` is null while only the table of runs has arrived. */
function Listed({ list }: { list: TraceList | null }) {
  const wanted = usePage((page) => page.trace);
  const tab = usePage((page) => page.tab);
  const openTrace = usePage((page) => page.openTrace);
  const openTab = usePage((page) => page.openTab);
  const traces = list?.traces ?? NO_TRACES;
  const known = traces.find((entry) => entry.id === wanted) ?? null;
  const instead = useInstead(traces, wanted, known);
  const shown = known ?? instead ?? newest(traces);
  const open = tab ?? (list ? firstView(traces, wanted) : "runs");

  // Decide once and keep it: runs and traces that appear later must not replace what is on the page.
  useEffect(() => {
    if (shown === null && list) return;
    if (tab === null) openTab(open);
    if (wanted === null && open !== "runs" && shown) openTrace(shown.id);
  }, [tab, open, wanted, list, shown, openTab, openTrace]);

  const problems = list?.problems.map((problem) => (
    <Problem key={problem.where + problem.what} problem={problem} />
  ));
  if (!shown && list) return <Empty problems={problems} />;
  return (
    <>
      <header className="gd-header">
        <h1 className="gd-unseen">GPU diagnosis</h1>
        <Tabs views={shown ? viewsFor(traces, shown, open) : [open]} open={open} />
        {open !== "runs" && shown && <Chooser traces={traces} entry={shown} />}
      </header>
      <main className="gd-main" data-view={open}>
        {problems}
        {wanted !== null && !known && open !== "runs" && (
          <Notice tone="warning">
            The linked recording is no longer in the log directory. This is another one.
          </Notice>
        )}
        {open !== "compare" && <BaseBar entry={open === "runs" ? null : shown} />}
        <Suspense fallback={<Waiting>Loading…</Waiting>}>
          {open === "runs" ? <Runs /> : shown && <View open={open} traces={traces} entry={shown} />}
        </Suspense>
      </main>
      <RulePanel />
    </>
  );
}

/**
 * The recording to show while the wanted one is gone. It stays until it is gone, too: while a job records and deletes,
 * the newest one changes faster than it can be read.
 */
function useInstead(
  traces: readonly TraceEntry[],
  wanted: string | null,
  known: TraceEntry | null,
): TraceEntry | null {
  const [id, setId] = useState<string | null>(null);
  const last = useRef<TraceEntry | null>(null);
  const instead = traces.find((entry) => entry.id === id) ?? null;
  useEffect(() => {
    if (known) last.current = known;
    else if (wanted !== null && instead === null) {
      const next = insteadOf(traces, last.current);
      last.current = next ?? last.current;
      setId(next?.id ?? null);
    }
  }, [traces, wanted, known, instead]);
  return wanted !== null && !known ? instead : null;
}

interface ViewProps {
  readonly open: Exclude<ViewName, "runs">;
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

function View({ open, traces, entry }: ViewProps) {
  switch (open) {
    case "history":
      return <HistoryView traces={traces} entry={entry} />;
    case "job":
      return <Job traces={traces} entry={entry} />;
    case "compare":
      return <Compare traces={traces} entry={entry} />;
    default:
      return <Trace key={entry.id} open={open} entry={entry} />;
  }
}
