import { CloseButton, Loader } from "@mantine/core";
import type { ReactNode } from "react";
import { cause, trigger } from "../../base/causes";
import { exactTime, percent, time } from "../../base/format";
import { around, type Viewport } from "../../base/viewport";
import { useGap } from "../../state/queries";
import { usePage, type GapKey } from "../../state/store";
import type { GapChain, GpuWork, HostCall, HostSegment, TraceEntry } from "../../wire/report";
import { Bar } from "../parts/Bar";
import { CauseSwatch } from "../parts/CauseSwatch";
import { More } from "../parts/More";
import { Problem } from "../status/Problem";

interface Props {
  readonly entry: TraceEntry;
  readonly gap: GapKey;
  readonly bounds: Viewport;
}

/** A host that did many things in a gap: the first of them. */
const FIRST = 12;

/** What led to a gap: what ran before, what the host did meanwhile, who launched what ended it. */
export function GapPanel({ entry, gap, bounds }: Props) {
  const openGap = usePage((page) => page.openGap);
  const { data, error, isLoading } = useGap(entry, gap);
  return (
    <aside className="gd-gap" aria-label="The selected gap">
      <CloseButton
        className="gd-gap-close"
        size="sm"
        aria-label="Close"
        onClick={() => {
          openGap(null);
        }}
      />
      {isLoading && <Loader size="sm" />}
      {error && <Problem problem={{ what: error.message, where: "", remedy: "" }} />}
      {data?.error && <Problem problem={data.error} />}
      {data?.state === "ready" && <Chain chain={data} bounds={bounds} />}
    </aside>
  );
}

function Chain({ chain, bounds }: { chain: GapChain; bounds: Viewport }) {
  const setView = usePage((page) => page.setView);
  const whole_us = chain.end_us - chain.start_us;
  return (
    <>
      <h3>
        Gap of {time(whole_us)} <span>on GPU {chain.device}</span>
      </h3>
      <p className="gd-muted">
        {exactTime(chain.start_us)} to {exactTime(chain.end_us)} · {trigger(chain.trigger)}
      </p>
      <Bar
        parts={chain.by_cause.map(({ cause: name, us }) => ({ name, us }))}
        whole_us={whole_us}
        label="Gap by cause"
      />
      <ul className="gd-gap-causes">
        {chain.by_cause.map((part) => (
          <li key={part.cause} title={cause(part.cause).meaning}>
            <CauseSwatch name={part.cause} />
            {cause(part.cause).label}
            <span className="gd-number">{time(part.us)}</span>
            <span className="gd-number gd-muted">{percent(part.us, whole_us)}</span>
          </li>
        ))}
      </ul>
      <ol className="gd-chain">
        <Link title="Before, on the GPU">
          {chain.before ? (
            <Work work={chain.before} />
          ) : (
            <p className="gd-muted">Nothing: the GPU's first work ends this gap.</p>
          )}
        </Link>
        {chain.host.length > 0 && (
          <Link title="Meanwhile, on the host">
            <More items={chain.host} first={FIRST}>
              {(shown) => (
                <ul className="gd-segments">
                  {shown.map((segment, at) => (
                    <Segment key={at} segment={segment} />
                  ))}
                </ul>
              )}
            </More>
          </Link>
        )}
        <Link title="Launched by">
          {chain.launch ? (
            <Launch call={chain.launch} />
          ) : (
            <p className="gd-muted">The trace does not say.</p>
          )}
        </Link>
        <Link title="After, on the GPU">
          {chain.after ? <Work work={chain.after} /> : <p className="gd-muted">Nothing.</p>}
        </Link>
      </ol>
      <button
        type="button"
        className="gd-link"
        onClick={() => {
          setView(around(chain, bounds));
        }}
      >
        Zoom to this gap
      </button>
    </>
  );
}

function Link({ title, children }: { title: string; children: ReactNode }) {
  return (
    <li>
      <h4>{title}</h4>
      {children}
    </li>
  );
}

function Work({ work }: { work: GpuWork }) {
  return (
    <>
      <p className="gd-chain-name" title={work.name}>
        {work.name}
      </p>
      <p className="gd-muted">
        {work.stream >= 0 && `stream ${work.stream} · `}
        {time(work.duration_us)}
        {work.operator && ` · from ${work.operator}`}
      </p>
    </>
  );
}

function Launch({ call }: { call: HostCall }) {
  return (
    <>
      <p className="gd-chain-name" title={call.name}>
        {call.name}
      </p>
      <p className="gd-muted">
        {time(call.duration_us)}
        {call.operator && ` · in ${call.operator}`}
        {call.thread && ` · ${call.thread}`}
      </p>
      {call.stack.length > 0 && (
        <ol className="gd-stack" aria-label="Call stack, innermost first">
          {[...call.stack].reverse().map((frame, at) => (
            <li key={at} title={frame}>
              {frame}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}

function Segment({ segment }: { segment: HostSegment }) {
  return (
    <li>
      <CauseSwatch name={segment.cause} />
      <span>
        <b title={segment.name}>{segment.name || cause(segment.cause).label}</b>
        {segment.place && <code title={segment.place}>{segment.place}</code>}
      </span>
      <span className="gd-number">{time(segment.duration_us)}</span>
    </li>
  );
}
