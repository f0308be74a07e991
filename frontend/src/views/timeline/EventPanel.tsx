import { ActionIcon, CloseButton, Loader, Tooltip } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { bytes, count, exactTime, time } from "../../base/format";
import { functionFirst } from "../../base/names";
import type { Slice } from "../../canvas/slice";
import { kindLabel } from "../../canvas/theme";
import { usePage } from "../../state/store";
import type { EventDetails, EventLink, EventLink_Kind } from "../../wire/report";
import { Problem } from "../status/Problem";
import { goToEvent, select, stepEvent, zoomToEvent, type Direction } from "./actions";
import { rangeOf, viewOfArrow } from "./goTo";
import { NotInFile } from "./NotInFile";
import { laneKey } from "./selected";
import type { Search } from "./useSearch";

interface Props {
  readonly event: UseQueryResult<EventDetails>;
  readonly search: Search;
  readonly reveal: (lane: string) => void;
  readonly overview: Slice | null;
}

/** The details of the selected event: where it is, its stack, its arguments, and what it is linked to. */
export function EventPanel({ event: { data, error, isLoading }, search, reveal, overview }: Props) {
  const openEvent = usePage((page) => page.openEvent);
  return (
    <aside className="gd-gap" aria-label="Selected event">
      <CloseButton className="gd-gap-close" size="sm" aria-label="Close" onClick={() => openEvent(null)} />
      {search.open && (
        <button type="button" className="gd-link" onClick={() => openEvent(null)}>
          Back to the matches
        </button>
      )}
      {isLoading && <Loader size="sm" />}
      {error && <Problem problem={{ what: "There is no such event.", where: "", remedy: "" }} />}
      {data?.error && <Problem problem={data.error} />}
      <NotInFile />
      {data?.state === "ready" && (
        <Details
          details={data}
          onGo={(lane) => {
            if (overview) reveal(laneKey(overview, lane));
          }}
        />
      )}
    </aside>
  );
}

interface DetailsProps {
  readonly details: EventDetails;
  readonly onGo: (lane: number) => void;
}

const STEPS: readonly (readonly [symbol: string, label: string, to: Direction])[] = [
  ["‹", "Previous event in this lane (←)", "previous"],
  ["›", "Next event in this lane (→)", "next"],
  ["▴", "Enclosing event (↑)", "outer"],
  ["▾", "First nested event (↓)", "inner"],
];

function Details({ details, onGo }: DetailsProps) {
  const { event, track, module, links, links_left_out: left } = details;
  const view = usePage((page) => page.view);
  if (!event) return null;
  return (
    <>
      <h3 className="gd-event-name" title={event.name}>
        {functionFirst(event.name)}
      </h3>
      <p className="gd-muted">
        {kindLabel(event.kind)} · {track}
      </p>
      <span className="gd-buttons" role="group" aria-label="Go to">
        {STEPS.map(([symbol, label, to]) => (
          <Tooltip key={to} label={label}>
            <ActionIcon size="sm" variant="default" aria-label={label} onClick={() => stepEvent(event, to)}>
              {symbol}
            </ActionIcon>
          </Tooltip>
        ))}
        <button type="button" className="gd-link" onClick={() => zoomToEvent(event)}>
          Zoom
        </button>
        <button type="button" className="gd-link" onClick={() => select(rangeOf(event))}>
          Statistics of this range
        </button>
      </span>
      <dl className="gd-event-facts">
        <Fact name="Duration" value={exactTime(event.duration_us)} />
        <Fact name="Start" value={exactTime(event.start_us)} />
        <Fact name="Module" value={module} />
        <Arguments details={details} />
      </dl>
      {links.length > 0 && <h4>Linked to</h4>}
      <ul className="gd-links">
        {links.map((link, at) => (
          <Linked
            key={at}
            link={link}
            from={event}
            onPress={() => {
              if (!link.event) return;
              onGo(link.event.lane);
              goToEvent(link.event, viewOfArrow(event, link.event, view));
            }}
          />
        ))}
      </ul>
      {left > 0 && <p className="gd-muted">and {count(left)} more</p>}
      {details.stack.length > 0 && (
        <>
          <h4>Call stack, innermost first</h4>
          <ol className="gd-stack" aria-label="Call stack, innermost first">
            {[...details.stack].reverse().map((frame, at) => (
              <li key={at} title={frame}>
                {functionFirst(frame)}
              </li>
            ))}
          </ol>
        </>
      )}
    </>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  if (!value) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd title={value}>{value}</dd>
    </div>
  );
}

function some(value: number, text = count(value)): string {
  return value > 0 ? text : "";
}

function Arguments({ details: d }: { details: EventDetails }) {
  return (
    <>
      <Fact name="Input shapes" value={d.shapes} />
      <Fact name="Input types" value={d.types} />
      <Fact
        name={d.warps_per_block > 0 || d.blocks > 0 ? "Grid × block" : "Other inputs"}
        value={d.settings}
      />
      <Fact name="Size" value={some(d.bytes, bytes(d.bytes))} />
      <Fact name="Blocks per SM" value={some(d.blocks_per_sm, d.blocks_per_sm.toPrecision(3))} />
      <Fact name="Warps per block" value={some(d.warps_per_block)} />
      <Fact name="Registers per thread" value={some(d.registers)} />
      <Fact name="Shared memory per block" value={some(d.shared_bytes, bytes(d.shared_bytes))} />
      <Fact name="Correlation" value={d.correlation} />
      <Fact name="External id" value={d.external_id} />
    </>
  );
}

/** What a link means, seen from the event: [the event leads to it, it leads to the event]. */
const MEANING: Readonly<Record<EventLink_Kind, readonly [to: string, from: string]>> = {
  launch: ["Launches", "Launched by"],
  release: ["Ends the wait", "Waits for"],
  backward: ["Backward", "Forward"],
};

interface LinkedProps {
  readonly link: EventLink;
  readonly from: { readonly start_us: number };
  readonly onPress: () => void;
}

function Linked({ link: { kind, leads_here, event }, from, onPress }: LinkedProps) {
  if (!event) return null;
  const meaning = MEANING[kind][leads_here ? 1 : 0];
  const later = event.start_us - from.start_us;
  return (
    <li>
      <span className="gd-muted">{meaning}</span>
      <button type="button" className="gd-link" title={event.name} onClick={onPress}>
        {functionFirst(event.name)}
      </button>
      <span className="gd-muted">
        {time(event.duration_us)} · {time(Math.abs(later))} {later < 0 ? "earlier" : "later"}
      </span>
    </li>
  );
}
