import { CodeBlock } from "../parts/CodeBlock";

const CODE = `with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True, ...) as prof:`;

/** How to record memory. Folded, because most traces have no memory. */
export function NotRecorded() {
  return (
    <details className="gd-card gd-unrecorded">
      <summary>
        Memory <span className="gd-muted">was not recorded. How to record it</span>
      </summary>
      <p>
        With <code>profile_memory=True</code> the profiler records each allocation. With stacks it also
        records the line that made it.
      </p>
      <CodeBlock code={CODE} label="how to record memory" />
    </details>
  );
}
