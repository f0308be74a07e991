import { lazy, Suspense, useEffect } from "react";
import { newest } from "../state/choose";
import { useTraces } from "../state/queries";
import { usePage } from "../state/store";
import { firstView, viewsFor } from "../state/views";
import type { ViewName } from "../base/hash";
import type { TraceEntry, TraceList } from "../wire/report";
import { Chooser } from "./chooser/Chooser";
import { Empty } from "./empty/Empty";
import { Notice } from "./parts/Notice";
import { RulePanel } from "./rule/RulePanel";
import { Problem } from "./status/Problem";
import { Searching } from "./status/Searching";
import { Tabs } from "./tabs/Tabs";
import { Trace } from "./Trace";

// Loaded when they are opened, so that the page appears as fast as without them.
const Compare = lazy(() => import("./compare/Compare"));
const HistoryView = lazy(() => import("./history/HistoryView"));
const Job = lazy(() => import("./job/Job"));
const Runs = lazy(() => import("./runs/Runs"));

export function Page() {
  const { data, isError } = useTraces();
  return (
    <div className="gd-page">
      {isError && <Notice tone="warning">TensorBoard does not respond. The page keeps retrying.</Notice>}
      {data && (data.scanned || data.traces.length > 0) ? (
        <Listed list={data} />
      ) : (
        <Searching failed={isError} />
      )}
    </div>
  );
}

function Listed({ list }: { list: TraceList }) {
  const wanted = usePage((page) => page.trace);
  const tab = usePage((page) => page.tab);
  const openTrace = usePage((page) => page.openTrace);
  const openTab = usePage((page) => page.openTab);
  const known = list.traces.find((entry) => entry.id === wanted) ?? null;
  const shown = known ?? newest(list.traces);
  const open = tab ?? firstView(list.traces, wanted);

  // Decide once and keep it: runs and traces that appear later must not replace what is on the page.
  useEffect(() => {
    if (shown === null) return;
    if (tab === null) openTab(open);
    if (wanted === null && open !== "runs") openTrace(shown.id);
  }, [tab, open, wanted, shown, openTab, openTrace]);

  const problems = list.problems.map((problem) => (
    <Problem key={problem.where + problem.what} problem={problem} />
  ));
  if (!shown) return <Empty problems={problems} />;
  return (
    <>
      <header className="gd-header">
        <h1 className="gd-unseen">GPU diagnosis</h1>
        {open !== "runs" && <Chooser traces={list.traces} entry={shown} />}
        <Tabs views={viewsFor(list.traces, shown, open)} open={open} />
      </header>
      <main className="gd-main" data-view={open}>
        {problems}
        {wanted !== null && !known && open !== "runs" && (
          <Notice tone="warning">
            The trace of this link is no longer in the log directory. This is the newest trace instead.
          </Notice>
        )}
        <Suspense fallback={<Searching failed={false} />}>
          <View open={open} traces={list.traces} entry={shown} />
        </Suspense>
      </main>
      <RulePanel />
    </>
  );
}

interface ViewProps {
  readonly open: ViewName;
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

function View({ open, traces, entry }: ViewProps) {
  switch (open) {
    case "runs":
      return <Runs />;
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
