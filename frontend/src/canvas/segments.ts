// Draws segments of memory as rows of blocks. Each row is one segment, from its first address to its last.

import { MEMORY_LINES, type Scheme } from "../base/vocabulary";
import type { SegmentMap } from "../wire/report";
import { fillArea } from "./boxes";
import { rowsInSight, type RowSight } from "./rowSight";
import type { Context } from "./scene";
import { FONT, theme, type Fill } from "./theme";

export const SEGMENT_PX = 18;

/** Left of the blocks, for the size of the segment. */
export const SEGMENT_LABEL_PX = 168;

const BAR_PX = 14;

/** Blocks this wide are set apart by a line. */
const APART_PX = 3;

/** What a part of a segment is. */
export type SegmentPart = "used" | "inactive" | "free";

export function segmentFill(part: SegmentPart, scheme: Scheme): Fill {
  const { surface, line, text } = theme(scheme);
  const color = { used: MEMORY_LINES.allocated.color[scheme], inactive: line, free: surface }[part];
  return { color, text, hatched: part === "inactive" };
}

/** The boxes of each row, in the order of their addresses. */
export function boxesOfRows(map: SegmentMap): readonly (readonly number[])[] {
  const rows: number[][] = map.rows.map(() => []);
  map.box_row.forEach((row, box) => rows[row]?.push(box));
  return rows;
}

interface SegmentScene extends RowSight {
  readonly map: SegmentMap;
  readonly boxes: readonly (readonly number[])[];
  readonly labels: readonly string[];
  readonly scheme: Scheme;
  readonly hover: number | null;
  readonly picked: number | null;
}

export function paintSegments(context: Context, scene: SegmentScene): void {
  const [first, last] = rowsInSight(scene, SEGMENT_PX, scene.map.rows.length);
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  for (let row = first; row < last; row++) paintRow(context, scene, row);
}

function paintRow(context: Context, scene: SegmentScene, row: number): void {
  const { map, boxes, labels, width, scroll, scheme } = scene;
  const segment = map.rows[row];
  if (!segment) return;
  const colors = theme(scheme);
  const top = row * SEGMENT_PX - scroll + (SEGMENT_PX - BAR_PX) / 2;
  const whole = width - SEGMENT_LABEL_PX;
  context.fillStyle = colors.muted;
  context.fillText(labels[row] ?? "", 0, top + BAR_PX / 2, SEGMENT_LABEL_PX - 8);
  const rest = segmentFill(segment.used_bytes > 0 ? "inactive" : "free", scheme);
  fillArea(context, scheme, rest, { left: SEGMENT_LABEL_PX, top, width: whole, height: BAR_PX });
  const used = segmentFill("used", scheme);
  const scale = whole / segment.bytes;
  context.fillStyle = used.color;
  if (!segment.boxed) context.fillRect(SEGMENT_LABEL_PX, top, segment.used_bytes * scale, BAR_PX);
  for (const box of boxes[row] ?? []) {
    const [left, long] = [(map.box_offset[box] ?? 0) * scale, (map.box_bytes[box] ?? 0) * scale];
    const gap = long >= APART_PX ? 1 : 0;
    context.fillStyle = box === scene.hover || box === scene.picked ? colors.accent : used.color;
    context.fillRect(SEGMENT_LABEL_PX + left, top, Math.max(long - gap, 0.5), BAR_PX);
    if (box !== scene.picked) continue;
    context.strokeStyle = colors.text;
    context.lineWidth = 2;
    context.strokeRect(SEGMENT_LABEL_PX + left, top, Math.max(long - gap, 2), BAR_PX);
  }
  context.strokeStyle = colors.line;
  context.lineWidth = 1;
  context.strokeRect(SEGMENT_LABEL_PX + 0.5, top + 0.5, whole - 1, BAR_PX - 1);
}

/** The box at a place: x from the left edge, y from the top of the first row. Null where there is none. */
export function boxAt(
  { map, boxes, width }: Pick<SegmentScene, "map" | "boxes" | "width">,
  x: number,
  y: number,
): number | null {
  const row = Math.floor(y / SEGMENT_PX);
  const segment = map.rows[row];
  if (!segment || x < SEGMENT_LABEL_PX) return null;
  const scale = (width - SEGMENT_LABEL_PX) / segment.bytes;
  const offset = (x - SEGMENT_LABEL_PX) / scale;
  const slack = 2 / scale;
  const inside = (box: number, more: number) => {
    const start = map.box_offset[box] ?? 0;
    return start - more <= offset && offset < start + (map.box_bytes[box] ?? 0) + more;
  };
  const own = boxes[row] ?? [];
  return own.find((box) => inside(box, 0)) ?? own.find((box) => inside(box, slack)) ?? null;
}

/** The box that an arrow key leads to. Rows without boxes are skipped. */
export function boxBeside(
  { map, boxes }: Pick<SegmentScene, "map" | "boxes">,
  from: number | null,
  key: string,
): number | null {
  const row = from === null ? -1 : (map.box_row[from] ?? -1);
  if (from !== null && (key === "ArrowLeft" || key === "ArrowRight")) {
    const own = boxes[row] ?? [];
    return own[own.indexOf(from) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
  }
  const by = key === "ArrowUp" ? -1 : 1;
  for (let next = row + by; next >= 0 && next < boxes.length; next += by) {
    const box = boxes[next]?.[0];
    if (box !== undefined) return box;
  }
  return null;
}

/** The call stack of a box, innermost first. */
export function stackOfBox(map: SegmentMap, box: number): string[] {
  const frames: string[] = [];
  for (let node = map.box_node[box] ?? -1; node >= 0; node = map.node_parent[node] ?? -1) {
    frames.push(map.names[map.node_name[node] ?? -1] ?? "");
  }
  return frames;
}
