import { withoutArguments } from "../../base/names";
import { Cut } from "../parts/Cut";
import { count, percent, plural, time } from "../../base/format";
import { useCalls } from "../../state/calls";
import { usePage } from "../../state/store";
import type { TimeSpan } from "../../wire/client";
import type { CallDetails, CallPart, CallStack, TimeRange, TraceEntry } from "../../wire/report";
import { Problem } from "../status/Problem";
import { aired } from "../../base/viewport";
import { More } from "../parts/More";
import { ShortTable } from "../parts/ShortTable";
import type { OpenRow } from "./openRow";
import { shapesText, shortName } from "./names";

interface Props {
  readonly entry: TraceEntry;
  readonly span: TimeSpan | null;
  readonly open: OpenRow;
  readonly onOpen: (row: OpenRow | null) => void;
  readonly onRoot: (root: number) => void;
}

const FIRST_STACKS = 3;
const FIRST_FRAMES = 8;

/** A row of a table in detail: where it is called from, what it launches, its longest calls. */
export function CallDetailsPanel({ entry, span, open, onOpen, onRoot }: Props) {
  const { kind, group, key } = open;
  const { data } = useCalls(entry, { kind, group, key }, span);
  const details = data?.state === "ready" ? data : null;
  return (
    <section className="gd-call" aria-label={`Details of ${open.name}`}>
      <header>
        <h3 title={open.name}>{open.name}</h3>
        <button type="button" className="gd-link" onClick={() => onOpen(null)}>
          Close
        </button>
      </header>
      {details && <Details details={details} kernel={kind === "kernel"} onRoot={onRoot} />}
      {!details && (data?.error ? <Problem problem={data.error} /> : <p>Loading…</p>)}
    </section>
  );
}

interface DetailsProps {
  readonly details: CallDetails;
  readonly kernel: boolean;
  readonly onRoot: (root: number) => void;
}

function Details({ details, kernel, onRoot }: DetailsProps) {
  return (
    <>
      <Longest ranges={details.longest} what={kernel ? "runs" : "calls"} />
      <div className="gd-call-parts">
        <Parts
          title="Called by"
          parts={details.callers}
          more={details.more_callers}
          text={withoutArguments}
        />
        <Parts title="Calls" parts={details.callees} more={details.more_callees} text={withoutArguments} />
        <Parts
          title={kernel ? "Launched by" : "Launches"}
          parts={details.kernels}
          more={details.more_kernels}
          text={withoutArguments}
        />
        <Parts title="Input shapes" parts={details.shapes} more={details.more_shapes} text={shapesText} />
      </div>
      {details.stacks.length > 0 && <h4>Call stacks</h4>}
      <More items={details.stacks} first={FIRST_STACKS}>
        {(shown) => (
          <ol className="gd-call-stacks">
            {shown.map((stack, at) => (
              <Stack key={at} stack={stack} onRoot={onRoot} />
            ))}
          </ol>
        )}
      </More>
      {details.more_stacks > 0 && (
        <p className="gd-rest">And {count(details.more_stacks)} more call stacks.</p>
      )}
    </>
  );
}

function Longest({ ranges, what }: { ranges: readonly TimeRange[]; what: string }) {
  if (ranges.length === 0) return null;
  return (
    <p>
      Longest {what}, on the timeline:{" "}
      {ranges.map((range, at) => (
        <button
          key={at}
          type="button"
          className="gd-link gd-call-range"
          aria-label={`Show on the timeline: ${time(range.end_us - range.start_us)} at ${time(range.start_us)}`}
          onClick={() => showRange(range)}
        >
          {time(range.end_us - range.start_us)}
        </button>
      ))}
    </p>
  );
}

/** Room on both sides of a call, so that its neighbors are in sight. */
const LEAST_AROUND_US = 20;

function showRange({ start_us, end_us }: TimeRange): void {
  const range = { start_us, end_us };
  const page = usePage.getState();
  page.openTab("timeline");
  page.setSelection(range);
  page.setView(aired(range, LEAST_AROUND_US));
}

interface PartsProps {
  readonly title: string;
  readonly parts: readonly CallPart[];
  readonly more: number;
  readonly text: (name: string) => string;
}

function Parts({ title, parts, more, text }: PartsProps) {
  if (parts.length === 0) return null;
  return (
    <div>
      <h4>{title}</h4>
      <ShortTable
        className="gd-plain"
        columns={[
          { title: "Name", tip: ({ name }) => name, cell: ({ name }) => <Cut text={text(name)} /> },
          { title: "Count", className: "gd-number", cell: (part) => count(part.count) },
          { title: "Time", className: "gd-number", cell: ({ us }) => time(us) },
        ]}
        rows={parts}
      />
      {more > 0 && <p className="gd-rest">And {count(more)} more.</p>}
    </div>
  );
}

function Stack({ stack, onRoot }: { stack: CallStack; onRoot: (root: number) => void }) {
  const hidden = Math.max(0, stack.frames.length - FIRST_FRAMES) + stack.more_frames;
  return (
    <li>
      <p>
        <b>{percent(stack.share)}</b> · {plural(stack.calls, "call")} · {time(stack.host_us)} host
        {stack.gpu_us > 0 && ` · ${time(stack.gpu_us)} GPU`}
        {stack.module && ` · in ${stack.module}`}
        {stack.forward && " · stack of the forward operator"}{" "}
        <button type="button" className="gd-link" onClick={() => onRoot(stack.node)}>
          Show in the call tree
        </button>
      </p>
      {stack.frames.length === 0 ? (
        <p className="gd-muted">No enclosing call, or no stack was recorded.</p>
      ) : (
        <Frames stack={stack} hidden={hidden} />
      )}
    </li>
  );
}

function Frames({ stack, hidden }: { stack: CallStack; hidden: number }) {
  const line = (at: number) => {
    const frame = stack.frames[at];
    return (
      frame && (
        <li key={at} title={frame.name}>
          {shortName(frame.name, frame.kind)}
        </li>
      )
    );
  };
  const places = [...stack.frames.keys()];
  return (
    <>
      <ul>{places.slice(0, FIRST_FRAMES).map(line)}</ul>
      {hidden > 0 && (
        <details>
          <summary>{plural(hidden, "outer frame")}</summary>
          <ul>{places.slice(FIRST_FRAMES).map(line)}</ul>
        </details>
      )}
    </>
  );
}
