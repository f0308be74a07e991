import { count, figures, percent, plural, time } from "../../base/format";
import type { LaunchQueue } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";

const FIRST = 4;

/** How much launched work was waiting for the GPU, by stream. */
export function LaunchQueues({ queues }: { queues: readonly LaunchQueue[] }) {
  if (queues.length === 0) return null;
  const waited = queues.filter((queue) => queue.full_queue_launches > 0);
  return (
    <div className="gd-queues">
      <h3>Launch queue depth</h3>
      <More items={queues} first={FIRST}>
        {(shown) => (
          <div className="gd-wide-plain" role="group" aria-label="Launch queue depth" tabIndex={0}>
            <table className="gd-table gd-launches">
              <thead>
                <tr>
                  <th scope="col">Stream</th>
                  <NumberTitle column="launches" />
                  <NumberTitle column="mean_depth" />
                  <NumberTitle column="median_depth" />
                  <NumberTitle column="max_depth" />
                  <NumberTitle column="queue_empty" />
                  <NumberTitle column="not_linked" />
                </tr>
              </thead>
              <tbody>
                {shown.map((queue) => (
                  <QueueRow key={`${queue.device}/${queue.stream}`} queue={queue} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </More>
      {waited.length > 0 && <FullQueues queues={waited} />}
    </div>
  );
}

function QueueRow({ queue }: { queue: LaunchQueue }) {
  return (
    <tr>
      <td className="gd-name">
        GPU {queue.device} stream {queue.stream}
      </td>
      <td className="gd-number">{count(queue.launches)}</td>
      <td className="gd-number">{figures(queue.mean_depth)}</td>
      <td className="gd-number">{count(queue.median_depth)}</td>
      <td className="gd-number">{count(queue.most_depth)}</td>
      <td className="gd-number">{percent(queue.empty_share)}</td>
      <td className="gd-number">{queue.not_launched_here > 0 ? count(queue.not_launched_here) : ""}</td>
    </tr>
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
