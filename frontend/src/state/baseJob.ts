// The job of the pinned base, whose ranks are set against those on the page.

import type { JobRank, TraceEntry } from "../wire/report";
import { usePinned } from "./base";
import { useJob } from "./queries";
import { contentsOf } from "./views";

export interface BaseJob {
  /** By rank. Empty while the ranks load. */
  readonly ranks: ReadonlyMap<number, JobRank>;
  /** Why there is nothing to compare with. */
  readonly problem: string;
}

/** Return the job of the base; null if none is pinned, or if it is the job on the page. */
export function useBaseJob(traces: readonly TraceEntry[], entry: TraceEntry): BaseJob | null {
  const base = usePinned()?.entry ?? null;
  const wanted = base !== null && base.run !== entry.run;
  const contents = contentsOf(traces.filter(({ run }) => run === base?.run));
  const { data } = useJob(base?.id ?? entry.id, contents, wanted);
  if (!wanted) return null;
  const ranks = (data?.job?.ranks ?? []).filter(({ rank }) => rank >= 0);
  return {
    ranks: new Map(ranks.map((rank) => [rank.rank, rank])),
    problem: data?.state === "failed" ? "The base does not have several ranks." : "",
  };
}
