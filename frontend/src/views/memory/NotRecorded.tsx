import { NSYS_RECORDING } from "../../base/vocabulary";
import type { Report } from "../../wire/report";
import { CodeBlock } from "../parts/CodeBlock";
import { fromNsys } from "../recording/parts";

const CODE = `with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True, ...) as prof:`;

/** How to record memory. Folded, because most traces have no memory events. */
export function NotRecorded({ report }: { report: Report }) {
  const nsys = fromNsys(report);
  return (
    <details className="gd-card gd-unrecorded">
      <summary>
        Memory <span className="gd-muted">was not recorded. How to record it</span>
      </summary>
      {nsys ? (
        <p>
          With <code>--cuda-memory-usage=true</code>, Nsight Systems records what the driver allocates. To see
          each allocation of PyTorch, record with torch.profiler and <code>profile_memory=True</code>.
        </p>
      ) : (
        <p>
          With <code>profile_memory=True</code>, the profiler records each allocation. With stacks, it also
          records the line of code that made it.
        </p>
      )}
      <CodeBlock code={nsys ? NSYS_RECORDING : CODE} label="how to record memory" />
    </details>
  );
}
