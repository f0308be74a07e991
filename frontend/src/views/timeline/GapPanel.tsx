import { CloseButton, Loader } from "@mantine/core";
import { useMemo, useState, type ReactNode } from "react";
import { cause } from "../../base/causes";
import { exactTime, percent, time } from "../../base/format";
import { aired } from "../../base/viewport";
import { TRIGGERS } from "../../base/vocabulary";
import { useGap } from "../../state/queries";
import { activitiesOf, longest, type Activity } from "../../state/gap";
import { usePage, type GapKey } from "../../state/store";
import type { GapChain, GpuWork, HostCall, HostSegment, TraceEntry } from "../../wire/report";
import { Bar } from "../parts/Bar";
import { CauseSwatch } from "../parts/CauseSwatch";
import { Problem } from "../status/Problem";

interface Props {
  readonly entry: TraceEntry;
  readonly gap: GapKey;
}

/** Explains a gap: what ran before, what the host did meanwhile, and which launch ended it. */
export function GapPanel({ entry, gap }: Props) {
  const openGap = usePage((page) => page.openGap);
  const { data, error, isLoading } = useGap(entry, gap);
  return (
    <aside className="gd-gap" aria-label="Selected gap">
      <CloseButton className="gd-gap-close" size="sm" aria-label="Close" onClick={() => openGap(null)} />
      {isLoading && <Loader size="sm" />}
      {error && <Problem problem={{ what: error.message, where: "", remedy: "" }} />}
      {data?.error && <Problem problem={data.error} />}
      {data?.state === "ready" && <Chain chain={data} />}
    </aside>
  );
}

function Chain({ chain }: { chain: GapChain }) {
  const setView = usePage((page) => page.setView);
  const whole_us = chain.end_us - chain.start_us;
  return (
    <>
      <h3>
        Gap of {time(whole_us)} <span>on GPU {chain.device}</span>
      </h3>
      <p className="gd-muted">
        {exactTime(chain.start_us)} to {exactTime(chain.end_us)} · {TRIGGERS[chain.trigger].noun}
      </p>
      <Bar
        parts={chain.by_cause.map(({ cause: name, us }) => ({ name, us }))}
        whole_us={whole_us}
        label="Gap by cause"
      />
      <ul className="gd-gap-causes">
        {chain.by_cause.map((part) => (
          <li key={part.cause} title={cause(part.cause).explanation}>
            <CauseSwatch name={part.cause} />
            {cause(part.cause).word}
            <span className="gd-number">{time(part.us)}</span>
            <span className="gd-number gd-muted">{percent(part.us, whole_us)}</span>
          </li>
        ))}
      </ul>
      <ol className="gd-chain">
        <Link title="On the GPU before the gap">
          {chain.before ? (
            <Work work={chain.before} />
          ) : (
            <p className="gd-muted">Nothing. The gap ends with the first GPU work of the trace.</p>
          )}
        </Link>
        {chain.host.length > 0 && (
          <Link title="On the host during the gap">
            <Meanwhile segments={chain.host} whole_us={whole_us} />
          </Link>
        )}
        <Link title="Launched by">
          {chain.launch ? (
            <Launch call={chain.launch} />
          ) : (
            <p className="gd-muted">Unknown: the trace has no launch for this work.</p>
          )}
        </Link>
        <Link title="On the GPU after the gap">
          {chain.after ? <Work work={chain.after} /> : <p className="gd-muted">Nothing.</p>}
        </Link>
      </ol>
      <button type="button" className="gd-link" onClick={() => setView(aired(chain))}>
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

function Meanwhile({ segments, whole_us }: { segments: readonly HostSegment[]; whole_us: number }) {
  const [all, setAll] = useState(false);
  const activities = useMemo(() => activitiesOf(segments), [segments]);
  const main = useMemo(() => longest(activities, whole_us), [activities, whole_us]);
  return (
    <>
      <ul className="gd-segments">
        {(all ? activities : main).map((activity, at) => (
          <ActivityLine key={at} activity={activity} />
        ))}
      </ul>
      {main.length < activities.length && (
        <button type="button" className="gd-link" onClick={() => setAll(!all)}>
          {all ? "Show only the longest" : `Show ${activities.length - main.length} shorter ones`}
        </button>
      )}
    </>
  );
}

function ActivityLine({ activity: { cause: name, name: what, place, us, times } }: { activity: Activity }) {
  return (
    <li>
      <CauseSwatch name={name} />
      <span>
        <b title={what}>
          {what || cause(name).word}
          {times > 1 && <span className="gd-muted"> × {times}</span>}
        </b>
        {place && <code title={place}>{place}</code>}
      </span>
      <span className="gd-number">{time(us)}</span>
    </li>
  );
}
