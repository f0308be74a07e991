import { useCallback, useMemo, useRef, useState } from "react";
import { bytes, count, percent, plural, time } from "../../base/format";
import { functionFirst } from "../../base/names";
import type { Order } from "../../base/sorting";
import { ARROWS, showRow, type RowSight } from "../../canvas/rowSight";
import type { Context } from "../../canvas/scene";
import {
  boxAt,
  boxBeside,
  boxesOfRows,
  paintSegments,
  segmentFill,
  SEGMENT_PX,
  stackOfBox,
  type SegmentPart,
} from "../../canvas/segments";
import { useSegments } from "../../state/calls";
import { whenMade } from "../../state/memory";
import { usePage } from "../../state/store";
import type { DeviceMemory, MapSegment, SegmentMap as Map, TraceEntry } from "../../wire/report";
import { CanvasRows } from "../parts/CanvasRows";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";

interface Props {
  readonly entry: TraceEntry;
  readonly memory: DeviceMemory;
  readonly at_us: number;
}

/** The segments of a snapshot at a moment, and the allocations in them. */
export function SegmentMap({ entry, memory, at_us }: Props) {
  const { data } = useSegments(entry, memory.device, at_us);
  const scheme = usePage((page) => page.scheme);
  if (data?.state !== "ready") {
    return <p className="gd-muted">{data?.error ? data.error.what : "Loading the segments…"}</p>;
  }
  const left = data.segments - data.rows.length;
  return (
    <section className="gd-segments" aria-label="Map of segments">
      <h4>Segments</h4>
      <p>
        {plural(data.segments, "segment")}, {bytes(data.bytes)} in total: {bytes(data.used_bytes)} allocated,{" "}
        {bytes(data.inactive_bytes)} inactive, {bytes(data.free_bytes)} free.
        {data.outside_bytes > 0 && ` ${bytes(data.outside_bytes)} is in no known segment.`}
      </p>
      <ul className="gd-memory-legend" aria-label="Legend of the segments">
        {PARTS.map(([part, word, about]) => (
          <li key={part} title={about}>
            <span
              className="gd-segment-part"
              data-part={part}
              style={part === "used" ? { background: segmentFill(part, scheme).color } : undefined}
              aria-hidden="true"
            />
            {word}
          </li>
        ))}
      </ul>
      <Rows key={data.device} map={data} />
      {left > 0 && <p className="gd-rest">And {plural(left, "smaller segment")}.</p>}
      <details className="gd-segment-table">
        <summary>Table of these segments</summary>
        <Table rows={data.rows} />
      </details>
    </section>
  );
}

const PARTS: readonly (readonly [SegmentPart, string, string])[] = [
  ["used", "Allocated", "In use by a tensor."],
  [
    "inactive",
    "Inactive",
    "In a segment that is partly used: free, or lost to rounding. Only requests that fit can use it.",
  ],
  ["free", "Free", "A segment without any allocation. torch.cuda.empty_cache() returns it to the driver."],
];

/** Taller maps scroll. */
const TALLEST_PX = 380;

function labelOf({ bytes: size, used_bytes, stream, pool, expandable }: MapSegment): string {
  const parts = [`${bytes(size)} · ${percent(used_bytes, size)}`];
  if (pool > 0) parts.push(`pool ${pool}`);
  else if (stream !== "" && stream !== "0") parts.push(`stream ${stream}`);
  if (expandable) parts.push("expandable");
  return parts.join(" · ");
}

function Rows({ map }: { map: Map }) {
  const scroller = useRef<HTMLDivElement>(null);
  const scheme = usePage((page) => page.scheme);
  const [hover, setHover] = useState<number | null>(null);
  const [chosen, setChosen] = useState<{ readonly of: Map; readonly box: number } | null>(null);
  const picked = chosen?.of === map ? chosen.box : null;
  const boxes = useMemo(() => boxesOfRows(map), [map]);
  const labels = useMemo(() => map.rows.map(labelOf), [map]);
  const paint = useCallback(
    (context: Context, sight: RowSight) =>
      paintSegments(context, { map, boxes, labels, ...sight, scheme, hover, picked }),
    [map, boxes, labels, scheme, hover, picked],
  );

  const pick = (box: number | null) => setChosen(box === null ? null : { of: map, box });
  const onKey = (key: string) => {
    if (key === "Escape") {
      pick(null);
      return true;
    }
    const next = ARROWS.has(key) ? boxBeside({ map, boxes }, picked, key) : null;
    if (next === null) return false;
    pick(next);
    showRow(scroller.current, map.box_row[next] ?? 0, SEGMENT_PX);
    return true;
  };
  if (map.rows.length === 0) return null;
  return (
    <>
      <CanvasRows
        label="Segments, largest first, each from its first address to its last. Arrow keys move between allocations, Escape deselects."
        className="gd-segment-box"
        rows={map.rows.length}
        rowPx={SEGMENT_PX}
        tallestPx={TALLEST_PX}
        scroller={scroller}
        paint={paint}
        hit={(x, y, width) => boxAt({ map, boxes, width }, x, y)}
        onHover={setHover}
        onPick={pick}
        onKey={onKey}
      />
      <p className="gd-flame-line">
        {hover !== null ? summaryOf(map, hover) : "Click an allocation for its call stack."}
      </p>
      <div aria-live="polite">{picked !== null && <Picked map={map} box={picked} />}</div>
    </>
  );
}

function isMerged(map: Map, box: number): boolean {
  return (map.box_count[box] ?? 1) > 1;
}

function summaryOf(map: Map, box: number): string {
  const size = bytes(map.box_requested[box] ?? 0);
  if (isMerged(map, box)) return `${count(map.box_count[box] ?? 0)} small allocations, ${size} in total`;
  const [frame] = stackOfBox(map, box);
  return frame ? `${size} · ${functionFirst(frame)}` : size;
}

function Picked({ map, box }: { map: Map; box: number }) {
  const segment = map.rows[map.box_row[box] ?? -1];
  const stack = stackOfBox(map, box);
  const freed = map.box_freed_us[box] ?? -1;
  const facts: readonly (readonly [string, string])[] = [
    ["Size", bytes(map.box_requested[box] ?? 0)],
    ["In its segment", bytes(map.box_bytes[box] ?? 0)],
    ["Segment", `${segment?.address ?? ""} + ${bytes(map.box_offset[box] ?? 0)}`],
    ["Allocated", whenMade(map.box_made_us[box] ?? -1)],
    ["Freed", freed < 0 ? "not freed" : time(freed)],
  ];
  if (isMerged(map, box)) return <p>{summaryOf(map, box)}.</p>;
  return (
    <div className="gd-segment-picked">
      <dl className="gd-facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {stack.length > 0 ? (
        <ol className="gd-stack" tabIndex={0} aria-label="Call stack, innermost first">
          {stack.map((frame, at) => (
            <li key={at} title={frame}>
              {functionFirst(frame)}
            </li>
          ))}
        </ol>
      ) : (
        <p className="gd-muted">The snapshot has no call stack for this allocation.</p>
      )}
    </div>
  );
}

function Table({ rows }: { rows: readonly MapSegment[] }) {
  const [order, setOrder] = useState<Order>({ by: "bytes", descending: true });
  return (
    <DataTable
      label="Segments"
      columns={COLUMNS}
      rows={rows}
      rowKey={({ address }) => address}
      order={order}
      onOrder={setOrder}
      maxHeight="300px"
      minWidth={620}
    />
  );
}

function sizes(id: string, title: string, of: (row: MapSegment) => number): Column<MapSegment> {
  return { id, title, width: 110, figures: true, value: of, cell: (row) => bytes(of(row)) };
}

const COLUMNS: readonly Column<MapSegment>[] = [
  {
    id: "address",
    title: "Address",
    value: ({ address }) => address,
    cell: ({ address, expandable }) => (
      <>
        <code>{address}</code>
        {expandable && <span className="gd-muted"> expandable</span>}
      </>
    ),
  },
  sizes("bytes", "Size", (row) => row.bytes),
  sizes("used", "Allocated", (row) => row.used_bytes),
  sizes("largest", "Largest free", (row) => row.largest_free_bytes),
  figure("blocks", "Allocations", 96, ({ blocks }) => blocks, count),
  {
    id: "stream",
    title: "Stream",
    width: 110,
    value: ({ stream }) => stream,
    cell: ({ stream }) => stream || "unknown",
  },
  {
    id: "pool",
    title: "Pool",
    width: 80,
    value: ({ pool }) => pool,
    cell: ({ pool }) => (pool > 0 ? `private ${pool}` : "shared"),
  },
];
