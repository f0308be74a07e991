import { SegmentedControl } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useCallback, useMemo, useState } from "react";
import { bytes, codePlace, count, moment, percent, plural, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { span, type Viewport } from "../../base/viewport";
import { below, trunk } from "../../canvas/flame";
import { useMemoryState } from "../../state/calls";
import { whenMade } from "../../state/memory";
import type { DeviceMemory, LiveBlock, MemoryState as State, TraceEntry } from "../../wire/report";
import { shortName } from "../operators/names";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
import { FlameGraph } from "../parts/FlameGraph";
import { SegmentMap } from "./SegmentMap";

interface Props {
  readonly entry: TraceEntry;
  readonly memory: DeviceMemory;
  readonly bounds: Viewport;
  /** The moment to show; null is the peak. */
  readonly chosen: number | null;
  readonly onChoose: (at_us: number | null) => void;
}

/** The slider has this many places. */
const PLACES = 1000;

const MOVING_MS = 200;

const PYTHON = 3;

/** What is live at a moment, by call stack, and the largest allocations. */
export function MemoryState({ entry, memory, bounds, chosen, onChoose }: Props) {
  const at_us = chosen ?? memory.peak_us;
  const [asked_us] = useDebouncedValue(at_us, MOVING_MS);
  const { data } = useMemoryState(entry, memory.device, asked_us);
  const state = data?.state === "ready" ? data : null;
  const step_us = span(bounds) / PLACES;
  return (
    <section className="gd-memory-state" aria-label="Live memory at a moment">
      <h3>Live memory at a moment</h3>
      <div className="gd-controls">
        <SegmentedControl
          size="xs"
          aria-label="Moment"
          data={[
            { value: "peak", label: "Peak" },
            { value: "end", label: "End" },
            { value: "other", label: "Other" },
          ]}
          value={at_us === memory.peak_us ? "peak" : at_us === bounds.end_us ? "end" : "other"}
          onChange={(value) => {
            if (value === "peak") onChoose(null);
            else onChoose(value === "end" ? bounds.end_us : bounds.start_us + span(bounds) / 2);
          }}
        />
        <input
          type="range"
          className="gd-moment"
          aria-label="Time"
          aria-valuetext={time(at_us)}
          min={bounds.start_us}
          max={bounds.end_us}
          step={step_us > 0 ? step_us : 1}
          value={at_us}
          onChange={(event) => onChoose(Number(event.currentTarget.value))}
        />
        <span className="gd-muted">{moment(at_us, step_us)}</span>
      </div>
      {state ? (
        <Live state={state} />
      ) : (
        <p className="gd-muted">{data?.error ? data.error.what : "Loading…"}</p>
      )}
      {memory.segments.length > 0 && <SegmentMap entry={entry} memory={memory} at_us={asked_us} />}
    </section>
  );
}

function Live({ state }: { state: State }) {
  const { before_bytes: before, unknown_bytes: unknown, earlier_bytes: earlier } = state;
  const of = [
    before > 0 ? `${bytes(before)} was allocated before the recording` : "",
    unknown > 0 ? `${bytes(unknown)} has no call stack` : "",
  ].filter((text) => text !== "");
  return (
    <>
      <p>
        {plural(state.allocations, "live allocation")}, {bytes(state.live_bytes)} in total.
        {of.length > 0 && ` Of this, ${of.join(", and ")}.`}
        {earlier > 0 && ` Another ${bytes(earlier)} from before the recording is not listed.`}
      </p>
      {state.node.length > 0 && <Stacks state={state} />}
      <Blocks state={state} />
    </>
  );
}

function Stacks({ state }: { state: State }) {
  const [root, setRoot] = useState<{ readonly of: State; readonly node: number } | null>(null);
  const whole = useMemo(
    () => ({
      names: state.names,
      parent: state.parent,
      name: state.name,
      kind: state.kind,
      weight: state.node_bytes,
    }),
    [state],
  );
  const from = root?.of === state ? root.node : null;
  const top = useMemo(() => from ?? trunk(whole), [from, whole]);
  const { data, nodes } = useMemo(
    () => (top === null ? { data: whole, nodes: null } : below(whole, top)),
    [whole, top],
  );
  const nodeOf = useCallback((at: number) => nodes?.[at] ?? at, [nodes]);
  const nameOf = useCallback((node: number) => state.names[state.name[node] ?? 0] ?? "", [state]);
  const short = useCallback(
    (at: number) => shortName(nameOf(nodeOf(at)), state.kind[nodeOf(at)] ?? PYTHON),
    [state, nameOf, nodeOf],
  );
  const text = (at: number) => {
    const node = nodeOf(at);
    const size = state.node_bytes[node] ?? 0;
    const blocks = plural(state.count[node] ?? 0, "allocation");
    const left = state.left_out[node] ?? 0;
    const more = left > 0 ? ` · ${count(left)} smaller below` : "";
    return `${nameOf(node)}: ${bytes(size)} (${percent(size, state.live_bytes)}) · ${blocks}${more}`;
  };
  return (
    <>
      {from !== null && (
        <p>
          <button type="button" className="gd-link" onClick={() => setRoot(null)}>
            Show all stacks
          </button>
        </p>
      )}
      <FlameGraph
        label="Flame graph of live memory by call stack"
        order="left_heavy"
        {...{ data, short, text }}
        onPick={(at) => setRoot({ of: state, node: nodeOf(at) })}
        onBack={() => setRoot(null)}
      />
    </>
  );
}

function Blocks({ state }: { state: State }) {
  const [order, setOrder] = useState<Order>({ by: "bytes", descending: true });
  if (state.blocks.length === 0) return null;
  return (
    <>
      <DataTable
        label="Largest live allocations"
        columns={COLUMNS}
        rows={state.blocks}
        rowKey={(block) => String(state.blocks.indexOf(block))}
        order={order}
        onOrder={setOrder}
        maxHeight="260px"
        minWidth={620}
      />
      {state.more_blocks > 0 && (
        <p className="gd-rest">
          And {count(state.more_blocks)} more, {bytes(state.more_blocks_bytes)} in total.
        </p>
      )}
    </>
  );
}

function placeOf({ place, operator }: LiveBlock): string {
  return [place ? codePlace(place) : "", operator].filter((text) => text !== "").join(" · ");
}

const COLUMNS: readonly Column<LiveBlock>[] = [
  {
    id: "site",
    title: "Allocated by",
    value: placeOf,
    cell: (block) => <span title={placeOf(block)}>{placeOf(block) || "Unknown"}</span>,
  },
  figure("bytes", "Size", 96, (block) => block.bytes, bytes),
  {
    id: "made",
    title: "Allocated at",
    unit: "µs",
    width: 150,
    figures: true,
    value: ({ made_us }) => made_us,
    cell: ({ made_us }) => whenMade(made_us),
  },
  {
    id: "freed",
    title: "Freed at",
    unit: "µs",
    width: 110,
    figures: true,
    value: ({ freed_us }) => (freed_us < 0 ? NaN : freed_us),
    cell: ({ freed_us }) => (freed_us < 0 ? "not freed" : time(freed_us)),
  },
];
