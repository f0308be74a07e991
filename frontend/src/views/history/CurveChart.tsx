import { useElementSize } from "@mantine/hooks";
import { useLayoutEffect, useRef, type PointerEvent } from "react";
import type uPlot from "uplot";
import { usePage } from "../../state/store";
import { AXIS_PX, dataOf, HEIGHT_PX, makePlot, RIGHT_PX, type Drawn } from "./plot";

interface Props {
  readonly drawn: Drawn;
  readonly help: string;
  readonly onPoint: (at: number | null) => void;
  readonly onOpen: (at: number) => void;
}

/** One chart. Arrow keys move over the points, Enter or a click opens one. */
export function CurveChart({ drawn, help, onPoint, onOpen }: Props) {
  const { ref, width } = useElementSize();
  const host = useRef<HTMLDivElement>(null);
  usePlot(host, drawn, Math.round(width));
  const { curves, labels, at } = drawn;
  const last = labels.length - 1;
  const under = (event: PointerEvent<HTMLElement>) => {
    const inner = Math.max(width - AXIS_PX - RIGHT_PX, 1);
    const x = event.clientX - event.currentTarget.getBoundingClientRect().left - AXIS_PX;
    return Math.max(0, Math.min(last, Math.floor((x / inner) * labels.length)));
  };
  return (
    <div
      className="gd-curve"
      ref={ref}
      style={{ height: HEIGHT_PX }}
      tabIndex={0}
      role="group"
      aria-label={`${curves.title} ${help}`}
      onKeyDown={(event) => {
        const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (by !== 0) {
          onPoint(at === null ? 0 : Math.max(0, Math.min(last, at + by)));
          event.preventDefault();
        }
        if (event.key === "Enter" && at !== null) onOpen(at);
      }}
      onPointerMove={(event) => onPoint(under(event))}
      onPointerLeave={() => onPoint(null)}
      onClick={() => {
        if (at !== null) onOpen(at);
      }}
    >
      <div ref={host} />
    </div>
  );
}

/** Keep one plot for the lifetime of the element. It draws the data of the latest render. */
function usePlot(host: React.RefObject<HTMLDivElement | null>, drawn: Drawn, width: number): void {
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(drawn);
  const visible = usePage((page) => page.visible);
  useLayoutEffect(() => {
    latest.current = drawn;
  });
  const { curves, scheme, at, changes } = drawn;
  useLayoutEffect(() => {
    if (!host.current || width === 0 || !visible) return;
    // Another number of lines needs another plot.
    plot.current?.destroy();
    plot.current = makePlot(host.current, width, () => latest.current);
  }, [host, curves, width, visible]);
  useLayoutEffect(() => {
    plot.current?.setData(dataOf(latest.current));
  }, [scheme, at, changes]);
  useLayoutEffect(
    () => () => {
      plot.current?.destroy();
      plot.current = null;
    },
    [],
  );
}
