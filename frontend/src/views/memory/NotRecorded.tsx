import { CodeBlock } from "../parts/CodeBlock";

const CODE = `with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True, ...) as prof:`;

/** How to record what is missing, out of the way. */
export function NotRecorded() {
  return (
    <details className="gd-card gd-unrecorded">
      <summary>
        Memory <span className="gd-muted">was not recorded: how to record it</span>
      </summary>
      <p>
        With <code>profile_memory=True</code> the profiler records each allocation; with stacks, also the line
        that made it.
      </p>
      <CodeBlock code={CODE} label="how to record memory" />
    </details>
  );
}
