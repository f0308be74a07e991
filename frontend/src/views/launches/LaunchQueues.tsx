import { count, figures, percent, plural, time } from "../../base/format";
import type { LaunchQueue } from "../../wire/report";
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
          <div className="gd-wide">
            <table className="gd-table gd-launches">
              <thead>
                <tr>
                  <th scope="col">Stream</th>
                  <Title text="Launches" meaning="Launches into this stream" />
                  <Title
                    text="Mean depth"
                    meaning="Launches that wait for the GPU, mean over the step window"
                  />
                  <Title text="Median depth" meaning="Median over the step window" />
                  <Title text="Max depth" meaning="Maximum over the step window" />
                  <Title text="Empty" meaning="Share of the step window in which no launch was waiting" />
                  <Title
                    text="Not linked"
                    meaning="Work without a launch in the trace. It counts from its start"
                  />
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

function Title({ text, meaning }: { text: string; meaning: string }) {
  return (
    <th scope="col" className="gd-number" title={meaning}>
      {text}
    </th>
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
      {plural(launches, "launch", "launches")} blocked for {time(waited_us)} in total on a full queue. That is
      not a problem: the host is ahead, and the GPU has work.
    </p>
  );
}
