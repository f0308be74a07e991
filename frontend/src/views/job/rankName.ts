import { count } from "../../base/format";
import type { JobRank } from "../../wire/report";

type Named = Pick<JobRank, "rank" | "worker">;

/** The rank's number, or its worker where the trace does not say the number. */
export function rankName({ rank, worker }: Named): string {
  return rank < 0 ? worker : count(rank);
}

/** What a table of ranks is sorted by. */
export function rankOrder({ rank, worker }: Named): number | string {
  return rank < 0 ? worker : rank;
}
