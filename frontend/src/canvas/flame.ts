// A flame graph: where each node is, what a point hits, and how it is painted. The root is at the top.

import type { Scheme } from "../base/vocabulary";
import { rowsInSight, type RowSight } from "./rowSight";
import type { Context } from "./scene";
import { fitted } from "./text";
import { FONT, kindFill, theme } from "./theme";

/** Nodes as columns of equal length. A node comes before those below it. */
export interface FlameData {
  readonly names: readonly string[];
  /** Index of the node above, or -1. */
  readonly parent: readonly number[];
  /** Index into the names. */
  readonly name: readonly number[];
  readonly kind: readonly number[];
  /** Weight of the node with all that is below it. */
  readonly weight: readonly number[];
}

export type FlameOrder = "left_heavy" | "in_order";

export interface Flame {
  readonly data: FlameData;
  /** Left edge of each node, in units of weight. */
  readonly left: Float64Array;
  readonly depth: Int32Array;
  /** Nodes of each depth, from left to right. */
  readonly rows: readonly (readonly number[])[];
  readonly children: readonly (readonly number[])[];
  readonly total: number;
}

export const ROW_PX = 19;

/** Narrower boxes have no outline, and hide in the color of their row. */
const OUTLINED_PX = 3;

const NAMED_PX = 28;

/** Opacity of the nodes that a search does not find. */
const FADED = 0.28;

/** Place the nodes. In order: as they come. Left heavy: the largest first. */
export function placed(data: FlameData, order: FlameOrder): Flame {
  const count = data.parent.length;
  const children: number[][] = Array.from({ length: count }, () => []);
  const roots: number[] = [];
  data.parent.forEach((parent, node) => (parent < 0 ? roots : (children[parent] ?? roots)).push(node));
  if (order === "left_heavy") {
    const heavier = (a: number, b: number) => (data.weight[b] ?? 0) - (data.weight[a] ?? 0);
    roots.sort(heavier);
    for (const own of children) own.sort(heavier);
  }
  const left = new Float64Array(count);
  const depth = new Int32Array(count);
  const rows: number[][] = [];
  let row = roots;
  let from = 0;
  for (const node of roots) {
    left[node] = from;
    from += data.weight[node] ?? 0;
  }
  while (row.length > 0) {
    rows.push(row);
    const below: number[] = [];
    for (const node of row) {
      let at = left[node] ?? 0;
      for (const child of children[node] ?? []) {
        left[child] = at;
        depth[child] = rows.length;
        at += data.weight[child] ?? 0;
        below.push(child);
      }
    }
    row = below;
  }
  return { data, left, depth, rows, children, total: from };
}

/** Return the node at a point of the graph, or null. */
export function nodeAt(flame: Flame, x: number, y: number, width: number): number | null {
  const row = flame.rows[Math.floor(y / ROW_PX)];
  if (!row || width <= 0 || flame.total <= 0) return null;
  const at = (x / width) * flame.total;
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((flame.left[row[middle] ?? 0] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  const node = row[low - 1];
  if (node === undefined) return null;
  return at < (flame.left[node] ?? 0) + (flame.data.weight[node] ?? 0) ? node : null;
}

/** Return the node that an arrow key leads to. */
export function neighbor(flame: Flame, node: number, key: string): number | null {
  const row = flame.rows[flame.depth[node] ?? 0] ?? [];
  switch (key) {
    case "ArrowUp": {
      const parent = flame.data.parent[node] ?? -1;
      return parent < 0 ? null : parent;
    }
    case "ArrowDown":
      return heaviest(flame, flame.children[node] ?? []);
    case "ArrowLeft":
      return row[row.indexOf(node) - 1] ?? null;
    case "ArrowRight":
      return row[row.indexOf(node) + 1] ?? null;
    default:
      return null;
  }
}

function heaviest(flame: Flame, nodes: readonly number[]): number | null {
  const weight = (node: number) => flame.data.weight[node] ?? 0;
  return nodes.reduce<number | null>(
    (best, node) => (best === null || weight(node) > weight(best) ? node : best),
    null,
  );
}

/** Return the weight of the found nodes. A found node below another one does not count again. */
export function foundWeight(flame: Flame, found: ReadonlySet<number>): number {
  const counted = new Uint8Array(flame.data.parent.length);
  let weight = 0;
  flame.data.parent.forEach((parent, node) => {
    const above = parent >= 0 && counted[parent] === 1;
    const own = found.has(flame.data.name[node] ?? -1);
    if (own && !above) weight += flame.data.weight[node] ?? 0;
    counted[node] = own || above ? 1 : 0;
  });
  return weight;
}

interface FlameScene extends RowSight {
  readonly flame: Flame;
  readonly scheme: Scheme;
  /** Indices of the names to highlight; null shows all alike. */
  readonly found: ReadonlySet<number> | null;
  readonly focus: number | null;
  readonly label: (node: number) => string;
}

export function paintFlame(context: Context, scene: FlameScene): void {
  const { flame, width, height, scroll } = scene;
  const colors = theme(scene.scheme);
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, width, height);
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  const scale = flame.total > 0 ? width / flame.total : 0;
  const [first, last] = rowsInSight(scene, ROW_PX, flame.rows.length);
  flame.rows.slice(first, last).forEach((row, at) => {
    const y = (first + at) * ROW_PX - scroll;
    let painted = -1;
    for (const node of row) {
      const x = (flame.left[node] ?? 0) * scale;
      const room = (flame.data.weight[node] ?? 0) * scale;
      // Many boxes on one pixel: paint the first.
      if (room < 1 && x + room < painted + 1) continue;
      painted = x + room;
      paintNode(context, scene, node, { x, y, room: Math.max(room, 1) });
    }
  });
  context.globalAlpha = 1;
}

interface Place {
  readonly x: number;
  readonly y: number;
  readonly room: number;
}

function paintNode(context: Context, scene: FlameScene, node: number, { x, y, room }: Place): void {
  const { flame, found, focus, scheme } = scene;
  const fill = kindFill(flame.data.kind[node] ?? 0, scheme);
  context.globalAlpha = found === null || found.has(flame.data.name[node] ?? -1) ? 1 : FADED;
  context.fillStyle = fill.color;
  context.fillRect(x, y, room > OUTLINED_PX ? room - 1 : room, ROW_PX - 1);
  if (room > NAMED_PX) {
    // On a faded color, the page's text color is readable, but the color's own text color is not.
    context.fillStyle = context.globalAlpha < 1 ? theme(scheme).text : fill.text;
    if (context.globalAlpha < 1) context.globalAlpha = 0.75;
    const text = fitted(context, scene.label(node), room - 8);
    if (text) context.fillText(text, x + 4, y + ROW_PX / 2);
  }
  if (node === focus) {
    context.globalAlpha = 1;
    context.strokeStyle = theme(scheme).text;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, Math.max(room - 3, 1), ROW_PX - 3);
  }
}

/** A caller that spends this share of the weight in a single call tells nothing that the call does not. */
const ALL_BUT = 0.995;

/** Return the innermost node that everything is in, below callers that only pass it on; null if there is none. */
export function trunk(data: FlameData): number | null {
  const children = new Map<number, number[]>();
  data.parent.forEach((parent, node) => {
    const own = children.get(parent);
    if (own) own.push(node);
    else children.set(parent, [node]);
  });
  const whole = (children.get(-1) ?? []).reduce((sum, node) => sum + (data.weight[node] ?? 0), 0);
  let at = -1;
  for (;;) {
    const next = (children.get(at) ?? []).find((node) => (data.weight[node] ?? 0) >= ALL_BUT * whole);
    if (next === undefined || !children.has(next)) break;
    at = next;
  }
  return at < 0 ? null : at;
}

/** Return the nodes at and below `root`, and the index of each in `data`. */
export function below(data: FlameData, root: number): { data: FlameData; nodes: readonly number[] } {
  const place = new Map<number, number>();
  data.parent.forEach((parent, node) => {
    if (node === root || place.has(parent)) place.set(node, place.size);
  });
  const nodes = [...place.keys()];
  const take = (column: readonly number[]) => nodes.map((node) => column[node] ?? 0);
  return {
    nodes,
    data: {
      names: data.names,
      parent: nodes.map((node) => (node === root ? -1 : (place.get(data.parent[node] ?? -1) ?? -1))),
      name: take(data.name),
      kind: take(data.kind),
      weight: take(data.weight),
    },
  };
}
