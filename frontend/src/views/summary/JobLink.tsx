import { plural } from "../../base/format";
import { useTraces } from "../../state/queries";
import { usePage } from "../../state/store";
import { viewsFor } from "../../state/views";
import { levels } from "../../state/choose";
import type { TraceEntry } from "../../wire/report";

/** Leads from one rank of a job to all of them. */
export function JobLink({ entry }: { entry: TraceEntry }) {
  const { data } = useTraces();
  const openTab = usePage((page) => page.openTab);
  const traces = data?.traces ?? [];
  if (!viewsFor(traces, entry, "summary").includes("job")) return null;
  return (
    <button type="button" className="gd-link" onClick={() => openTab("job")}>
      One of {plural(levels(traces, entry).workers.size, "rank")}: see the whole job
    </button>
  );
}
