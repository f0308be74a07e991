import { useElementSize } from "@mantine/hooks";
import {
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  type KeyboardEvent,
  type MouseEvent,
} from "react";
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
import { fitted } from "../../canvas/fit";
import { usePage } from "../../state/store";

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

const KEYS = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]);

/** A flame graph with its root at the top. A click or Enter picks a node, arrow keys move between nodes. */
export function FlameGraph(props: Props) {
  const { label, data, order, short, text, search = "", marked = null, onPick, onBack } = props;
  const { ref, width } = useElementSize();
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [scroll, setScroll] = useState(0);
  const [hover, setHover] = useState<number | null>(null);
  const [focused, setFocused] = useState<{ readonly of: FlameData; readonly node: number } | null>(null);
  const scheme = usePage((page) => page.scheme);
  const visible = usePage((page) => page.visible);
  const flame = useMemo(() => placed(data, order), [data, order]);
  const found = useMemo(() => foundNames(data, search, marked), [data, search, marked]);
  const focus = focused?.of === data ? focused.node : null;
  const whole = flame.rows.length * ROW_PX;
  const height = Math.min(Math.max(whole, ROW_PX), TALLEST_PX);
  const shown = hover ?? focus;

  useLayoutEffect(() => {
    const context = visible ? fitted(canvas.current, width, height) : null;
    if (!context) return;
    paintFlame(context, { flame, width, height, scroll, scheme, found, focus: shown, label: short });
  }, [flame, width, height, scroll, scheme, found, shown, short, visible]);

  useEffect(() => {
    if (found === null) return;
    const row = flame.rows.findIndex((nodes) => nodes.some((node) => found.has(data.name[node] ?? -1)));
    if (row >= 0) intoSight(scroller.current, row);
  }, [found, flame, data]);

  const hit = (event: MouseEvent<HTMLDivElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return nodeAt(flame, event.clientX - box.left, event.clientY - box.top + scroll, width);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && onBack) onBack();
    else if (event.key === "Enter" && focus !== null) onPick(focus);
    else if (KEYS.has(event.key)) {
      const next = focus === null ? flame.rows[0]?.[0] : neighbor(flame, focus, event.key);
      if (next !== null && next !== undefined) {
        setFocused({ of: data, node: next });
        setHover(null);
        intoSight(scroller.current, flame.depth[next] ?? 0);
      }
    } else return;
    event.preventDefault();
  };
  return (
    <div className="gd-flame">
      <div ref={ref} />
      <div
        className="gd-flame-box"
        ref={scroller}
        style={{ height }}
        tabIndex={0}
        role="group"
        aria-label={`${label}. Arrow keys move between calls, Enter zooms into one, Escape zooms out.`}
        onKeyDown={onKeyDown}
        onScroll={(event) => {
          setScroll(event.currentTarget.scrollTop);
        }}
        onMouseMove={(event) => {
          setHover(hit(event));
        }}
        onMouseLeave={() => {
          setHover(null);
        }}
        onClick={(event) => {
          const node = hit(event);
          if (node === null) return;
          setFocused({ of: data, node });
          onPick(node);
        }}
      >
        <canvas ref={canvas} style={{ width, height }} aria-hidden="true" />
        <div style={{ height: Math.max(0, whole - height) }} />
      </div>
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

function intoSight(box: HTMLDivElement | null, depth: number): void {
  if (!box) return;
  const top = depth * ROW_PX;
  if (top < box.scrollTop) box.scrollTo({ top });
  else if (top + ROW_PX > box.scrollTop + box.clientHeight) {
    box.scrollTo({ top: top + ROW_PX - box.clientHeight });
  }
}
