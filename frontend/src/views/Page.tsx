import { useEffect } from "react";
import { newest } from "../state/choose";
import { useTraces } from "../state/queries";
import { usePage } from "../state/store";
import type { TraceList } from "../wire/report";
import { Chooser } from "./chooser/Chooser";
import { Empty } from "./empty/Empty";
import { Notice } from "./parts/Notice";
import { Problem } from "./status/Problem";
import { Searching } from "./status/Searching";
import { Trace } from "./Trace";

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
  const openTrace = usePage((page) => page.openTrace);
  const known = list.traces.find((entry) => entry.id === wanted) ?? null;
  const shown = known ?? newest(list.traces);

  // Select once and keep it: a newer trace that appears later must not replace the one on the page.
  useEffect(() => {
    if (wanted === null && shown !== null) openTrace(shown.id);
  }, [wanted, shown, openTrace]);

  const problems = list.problems.map((problem) => (
    <Problem key={problem.where + problem.what} problem={problem} />
  ));
  if (!shown) return <Empty problems={problems} />;
  return (
    <>
      <Chooser traces={list.traces} entry={shown} />
      <main className="gd-main">
        {problems}
        {wanted !== null && !known && (
          <Notice tone="warning">
            The trace of this link is no longer in the log directory. This is the newest trace instead.
          </Notice>
        )}
        <Trace key={shown.id} entry={shown} />
      </main>
    </>
  );
}
