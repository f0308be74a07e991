import { count, figures, percent, plural, time } from "../../base/format";
import type { LaunchQueue } from "../../wire/report";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 4;

const QUEUES: readonly ShortColumn<LaunchQueue>[] = [
  { title: "Stream", className: "gd-name", cell: ({ device, stream }) => `GPU ${device} stream ${stream}` },
  { figure: "launches", cell: ({ launches }) => count(launches) },
  { figure: "mean_depth", cell: ({ mean_depth }) => figures(mean_depth) },
  { figure: "median_depth", cell: ({ median_depth }) => count(median_depth) },
  { figure: "max_depth", cell: ({ most_depth }) => count(most_depth) },
  { figure: "queue_empty", cell: ({ empty_share }) => percent(empty_share) },
  { figure: "not_linked", cell: ({ not_launched_here: n }) => (n > 0 ? count(n) : "") },
];

/** How much launched work was waiting for the GPU, by stream. */
export function LaunchQueues({ queues }: { queues: readonly LaunchQueue[] }) {
  if (queues.length === 0) return null;
  const waited = queues.filter((queue) => queue.full_queue_launches > 0);
  return (
    <div className="gd-queues">
      <h3>Launch queue depth</h3>
      <ShortTable
        className="gd-table gd-launches"
        columns={QUEUES}
        rows={queues}
        first={FIRST}
        box="Launch queue depth"
      />
      {waited.length > 0 && <FullQueues queues={waited} />}
    </div>
  );
}

function FullQueues({ queues }: { queues: readonly LaunchQueue[] }) {
  const launches = queues.reduce((sum, queue) => sum + queue.full_queue_launches, 0);
  const waited_us = queues.reduce((sum, queue) => sum + queue.full_queue_us, 0);
  return (
    <p className="gd-muted">
      {plural(launches, "launch", "launches")} blocked on a full queue, for {time(waited_us)} in total. That
      is not a problem: the host is ahead, and the GPU has work.
    </p>
  );
}
