import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { percent } from "../../base/format";
import {
  foundWeight,
  neighbor,
  nodeAt,
  paintFlame,
  placed,
  ROW_PX,
  type FlameData,
  type FlameOrder,
} from "../../canvas/flame";
import { ARROWS, showRow, type RowSight } from "../../canvas/rowSight";
import type { Context } from "../../canvas/scene";
import { usePage } from "../../state/store";
import { CanvasRows } from "./CanvasRows";

interface Props {
  /** What the graph shows, for screen readers. */
  readonly label: string;
  readonly data: FlameData;
  readonly order: FlameOrder;
  /** What is drawn on a node. */
  readonly short: (node: number) => string;
  /** Everything about a node, on one line. */
  readonly text: (node: number) => string;
  /** Highlights the nodes with names that contain this, or the one with exactly this name. */
  readonly search?: string;
  readonly marked?: string | null;
  readonly onPick: (node: number) => void;
  /** Escape: to what is around the root. */
  readonly onBack?: () => void;
}

/** Deeper graphs scroll. */
const TALLEST_PX = 400;

/** A flame graph with its root at the top. A click or Enter picks a node, arrow keys move between nodes. */
export function FlameGraph(props: Props) {
  const { label, data, order, short, text, search = "", marked = null, onPick, onBack } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [hover, setHover] = useState<number | null>(null);
  const [focused, setFocused] = useState<{ readonly of: FlameData; readonly node: number } | null>(null);
  const scheme = usePage((page) => page.scheme);
  const flame = useMemo(() => placed(data, order), [data, order]);
  const found = useMemo(() => foundNames(data, search, marked), [data, search, marked]);
  const focus = focused?.of === data ? focused.node : null;
  const shown = hover ?? focus;
  const paint = useCallback(
    (context: Context, sight: RowSight) =>
      paintFlame(context, { flame, ...sight, scheme, found, focus: shown, label: short }),
    [flame, scheme, found, shown, short],
  );

  useEffect(() => {
    if (found === null) return;
    const row = flame.rows.findIndex((nodes) => nodes.some((node) => found.has(data.name[node] ?? -1)));
    if (row >= 0) showRow(scroller.current, row, ROW_PX);
  }, [found, flame, data]);

  const move = (key: string) => {
    const next = focus === null ? flame.rows[0]?.[0] : neighbor(flame, focus, key);
    if (next === null || next === undefined) return;
    setFocused({ of: data, node: next });
    setHover(null);
    showRow(scroller.current, flame.depth[next] ?? 0, ROW_PX);
  };
  const onKey = (key: string) => {
    if (key === "Escape" && onBack) onBack();
    else if (key === "Enter" && focus !== null) onPick(focus);
    else if (ARROWS.has(key)) move(key);
    else return false;
    return true;
  };
  return (
    <div className="gd-flame">
      <CanvasRows
        label={`${label}. Arrow keys move between calls, Enter zooms into one, Escape zooms out.`}
        rows={flame.rows.length}
        rowPx={ROW_PX}
        tallestPx={TALLEST_PX}
        scroller={scroller}
        paint={paint}
        hit={(x, y, width) => nodeAt(flame, x, y, width)}
        onHover={setHover}
        onPick={(node) => {
          if (node === null) return;
          setFocused({ of: data, node });
          onPick(node);
        }}
        onKey={onKey}
      />
      <p className="gd-flame-line" aria-live="polite">
        {shown !== null ? text(shown) : summary(flame.total, found && foundWeight(flame, found))}
      </p>
    </div>
  );
}

function summary(total: number, found: number | null): string {
  return found === null ? "" : `Highlighted: ${percent(found, total)}`;
}

/** Return the indices of the names to highlight; null for all. */
function foundNames(data: FlameData, search: string, marked: string | null): ReadonlySet<number> | null {
  const wanted = search.trim().toLowerCase();
  if (wanted === "" && marked === null) return null;
  const names = [...data.names.entries()];
  const some = names.filter(([, name]) =>
    wanted === "" ? name === marked : name.toLowerCase().includes(wanted),
  );
  // Nothing to point at: show all alike.
  return some.length === 0 && wanted === "" ? null : new Set(some.map(([index]) => index));
}
