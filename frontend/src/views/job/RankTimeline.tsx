import { useElementSize } from "@mantine/hooks";
import {
  useCallback,
  useEffect,
  useEffectEvent,
  useMemo,
  useState,
  type KeyboardEvent,
  type PointerEvent,
} from "react";
import { plural } from "../../base/format";
import { aired, clamp, covers, pan, span, toTime, zoom, type Viewport } from "../../base/viewport";
import { heightOf, laneAt, paintRanks } from "../../canvas/ranks";
import {
  besideSpot,
  boundsOf,
  inRecording,
  lanesOf,
  markedFrom,
  spotAt,
  type Lane,
  type Spot,
} from "../../canvas/rankLanes";
import type { Context } from "../../canvas/scene";
import { usePage } from "../../state/store";
import type { JobReport } from "../../wire/report";
import { Section } from "../parts/Section";
import { useCanvas } from "../parts/useCanvas";
import { sideways } from "../parts/wheel";
import { RankLegend } from "./RankLegend";
import { RankStretches } from "./RankStretches";
import { laneName, stretchText } from "./stretchText";

/** Height of all lanes together, and of the tallest and the lowest that one can be. */
const LANES_PX = 520;
const TALLEST_PX = 34;
const LOWEST_PX = 9;

const LABELS_PX = 52;

const ZOOM_STEP = 0.6;
const WHEEL_ZOOM = 0.0022;
const LINE_PX = 16;

/** What each rank does over time, a lane per rank. */
export function RankTimeline({ job }: { job: JobReport }) {
  const lanes = useMemo(() => lanesOf(job), [job]);
  const left = job.timeline?.left_out ?? 0;
  if (lanes.length === 0) return null;
  const apart = lanes.some(({ aligned }) => !aligned);
  return (
    <Section
      title="Timeline of the ranks"
      aside={
        <span className="gd-muted">
          {left > 0 &&
            `The ${plural(lanes.length, "rank")} that the others wait for longest; ${plural(left, "other")} without a lane. `}
          Ctrl-wheel to zoom, click to open a rank&rsquo;s own timeline.
        </span>
      }
    >
      {apart && (
        <p className="gd-says">
          Some clocks cannot be compared. A lane whose name has a star begins at the start of its own
          recording, so do not compare its times with those of other lanes.
        </p>
      )}
      <Chart job={job} lanes={lanes} />
      {job.timeline?.merged && (
        <p className="gd-nothing">Short stretches and back-to-back collectives are merged.</p>
      )}
      <RankLegend lanes={lanes} />
      <RankStretches lanes={lanes} />
    </Section>
  );
}

function Chart({ job, lanes }: { job: JobReport; lanes: readonly Lane[] }) {
  const { ref, width: whole } = useElementSize();
  const scheme = usePage((page) => page.scheme);
  const [seen, setSeen] = useState<Viewport | null>(null);
  const [focus, setFocus] = useState<Spot | null>(null);
  const bounds = useMemo(() => boundsOf(lanes), [lanes]);
  const marked_us = useMemo(() => markedFrom(lanes), [lanes]);
  const view = useMemo(() => clamp(seen ?? bounds, bounds), [seen, bounds]);
  const width = Math.max(whole - LABELS_PX, 1);
  const laneHeight = Math.max(LOWEST_PX, Math.min(TALLEST_PX, Math.floor(LANES_PX / lanes.length)));
  const height = heightOf(lanes.length, laneHeight);
  const steps = useMemo(() => (lanes.every(({ aligned }) => aligned) ? stepMarks(job) : []), [job, lanes]);
  const paint = useCallback(
    (context: Context) =>
      paintRanks(context, { lanes, steps, view, width, laneHeight, scheme, focus, marked_us }),
    [lanes, steps, view, width, laneHeight, scheme, focus, marked_us],
  );
  const canvas = useCanvas(whole > 0 ? width : 0, height, paint);
  useZoom(canvas, view, bounds, setSeen);

  const open = (spot: Spot | null) => {
    const lane = spot && lanes[spot.lane];
    const stretch = lane?.stretches[spot?.stretch ?? -1];
    if (!lane || !stretch) return;
    const { openTab, setView } = usePage.getState();
    openTab("timeline", lane.rank.id);
    setView(aired(inRecording(lane, stretch)));
  };
  const onPoint = (event: PointerEvent<HTMLCanvasElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const lane = laneAt({ lanes, laneHeight }, event.clientY - box.top);
    setFocus(spotAt(lanes, lane, toTime(view, event.clientX - box.left, width)));
  };
  const move = (key: string) => {
    const next = focus ? besideSpot(lanes, focus, key) : spotAt(lanes, 0, view.start_us);
    const stretch = next && lanes[next.lane]?.stretches[next.stretch];
    if (!stretch) return;
    setFocus(next);
    if (!covers(view, stretch) && span(stretch) < span(view)) {
      const middle = (stretch.start_us + stretch.end_us - view.start_us - view.end_us) / 2;
      setSeen(pan(view, middle, bounds));
    }
  };
  const zoomBy = (factor: number) => {
    const { start_us, end_us } = (focus && lanes[focus.lane]?.stretches[focus.stretch]) ?? view;
    setSeen(zoom(view, factor, (start_us + end_us) / 2, bounds));
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) move(event.key);
    else if (event.key === "Enter") open(focus);
    else if (event.key === "+") zoomBy(ZOOM_STEP);
    else if (event.key === "-") zoomBy(1 / ZOOM_STEP);
    else if (event.key === "Escape" && seen) setSeen(null);
    else return;
    event.preventDefault();
  };
  const every = Math.ceil(14 / laneHeight);
  return (
    <div className="gd-heat gd-lanes">
      <div ref={ref} />
      <div
        className="gd-lanes-map"
        tabIndex={0}
        role="group"
        aria-label="Timeline of the ranks. Arrow keys move between ranks and stretches, Enter opens one on the rank's own timeline, plus and minus zoom, Escape shows everything. The table below has the same figures."
        onKeyDown={onKey}
      >
        <div className="gd-heat-rows" style={{ width: LABELS_PX, height }} aria-hidden="true">
          {lanes.map(
            (lane, at) =>
              at % every === 0 && (
                <span
                  key={lane.rank.id}
                  style={{ top: heightOf(at, laneHeight), height: Math.max(laneHeight, 12) }}
                >
                  {laneName(lane)}
                </span>
              ),
          )}
        </div>
        <canvas
          ref={canvas}
          style={{ width, height }}
          aria-hidden="true"
          onPointerMove={onPoint}
          onClick={() => open(focus)}
        />
      </div>
      <p className="gd-lanes-text" role="status">
        {focus ? stretchText(lanes, focus) : "Hover over a stretch to read it."}
      </p>
    </div>
  );
}

function stepMarks({ steps }: JobReport) {
  return steps.map(({ name, start_us }) => ({
    name: name.replace(/^ProfilerStep#/, "Step "),
    start_us,
  }));
}

/** Zoom with Ctrl and the wheel, pan with Shift or sideways. React's own listeners cannot stop the page's zoom. */
function useZoom(
  canvas: { readonly current: HTMLCanvasElement | null },
  view: Viewport,
  bounds: Viewport,
  setView: (view: Viewport) => void,
): void {
  const turned = useEffectEvent((event: WheelEvent, box: DOMRect) => {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
    const across = sideways(event);
    if (event.ctrlKey || event.metaKey) {
      const at_us = toTime(view, event.clientX - box.left, box.width);
      setView(zoom(view, Math.exp(event.deltaY * unit * WHEEL_ZOOM), at_us, bounds));
    } else if (across !== null) {
      setView(pan(view, ((across * unit) / box.width) * span(view), bounds));
    } else return;
    event.preventDefault();
  });
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => turned(event, element.getBoundingClientRect());
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [canvas]);
}
