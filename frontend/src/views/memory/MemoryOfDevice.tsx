import { Button, Loader, Tooltip } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useMemo, useState } from "react";
import type { Viewport } from "../../base/viewport";
import { caveat, floorSentence, memoryLabel, peakSentence, spanName } from "../../state/memory";
import { scaleOf, type Scale } from "../../state/memoryCurve";
import { useMemorySlices, useRange, type MemorySlices } from "../../state/memoryQuery";
import { usePage } from "../../state/store";
import { isEmbedded } from "../../wire/client";
import type { DeviceMemory, MemoryOwner, StepMark, TraceEntry } from "../../wire/report";
import { IconKey } from "../parts/IconKey";
import { useShown } from "../parts/ShowOnTimeline";
import { fit } from "../timeline/actions";
import { Selected } from "../timeline/Selected";
import { Chart } from "./Chart";
import { AgainstBase } from "./AgainstBase";
import { Bands } from "./Bands";
import { GrowingSites } from "./GrowingSites";
import { MemoryState } from "./MemoryState";
import { Legend } from "./Legend";
import type { Marks } from "./marks";
import { PeakOwners } from "./PeakOwners";
import { RangePanel } from "./RangePanel";
import { Reserved } from "./Reserved";
import { Segments } from "./Segments";

interface Props {
  readonly entry: TraceEntry;
  readonly memory: DeviceMemory;
}

const NO_STEPS: readonly StepMark[] = [];
const NO_SCALE: Scale = { min: 0, max: 1, reserved: true, capacity: false };
const NO_RANGES: readonly Viewport[] = [];

export function MemoryOfDevice({ entry, memory }: Props) {
  const wanted = usePage((page) => page.view);
  const { ref, width } = useElementSize<HTMLDivElement>();
  const slices = useMemorySlices(entry, memory.device, wanted, Math.round(width));
  const selection = usePage((page) => page.selection);
  const setSelection = usePage((page) => page.setSelection);
  const range = useRange(entry, memory.device, selection);
  const steps = slices.whole?.steps ?? NO_STEPS;
  const marks = useMarks(memory, slices, steps);
  const [owner, setOwner] = useState<MemoryOwner | null>(null);
  const [moment_us, setMoment] = useState<number | null>(null);
  const paired = saysFrees(slices);
  const live = paired && !isEmbedded();
  const untilPeak = { start_us: slices.bounds.start_us, end_us: memory.peak_us };
  const atPeak = selection?.start_us === untilPeak.start_us && selection.end_us === untilPeak.end_us;
  const picked = atPeak ? owner : null;
  const step = (by: 1 | -1) => selectStep(steps, by);
  return (
    <>
      <div className="gd-memory-words">
        <p>
          {peakSentence(memory)} {floorSentence(memory)}
        </p>
        <AgainstBase entry={entry} memory={memory} />
        {caveat(memory) && <p className="gd-muted">{caveat(memory)}</p>}
      </div>
      <div className="gd-memory-body">
        <Controls slices={slices} steps={steps} live={live} onStep={step} />
        {slices.failed && <p className="gd-nothing">Could not load the memory curve: {slices.failed}.</p>}
        <Chart
          columns={slices.columns}
          marks={marks}
          bounds={slices.bounds}
          width={Math.round(width)}
          measure={ref}
          label={`Memory of ${memoryLabel(memory)} over time`}
          onStep={step}
          moment_us={live ? (moment_us ?? memory.peak_us) : NaN}
          onMoment={setMoment}
        />
        <Legend memory={memory} scale={marks.scale} />
      </div>
      {paired && (
        <Bands entry={entry} memory={memory} bounds={slices.bounds} view={slices.view} onMoment={setMoment} />
      )}
      <GrowingSites memory={memory} bounds={slices.bounds} />
      <div className="gd-memory-parts">
        <RangePanel
          // While a new range loads, the previous one is still shown, with its own title.
          title={
            atPeak
              ? "From the start to the peak"
              : selection
                ? spanName(range ?? selection, steps)
                : "Whole recording"
          }
          slice={selection ? range : slices.whole}
          whole={selection === null}
          picked={picked}
        />
        <div className="gd-memory-held">
          <PeakOwners
            memory={memory}
            picked={picked}
            onPick={(pressed) => {
              setOwner(pressed);
              setSelection(pressed === picked ? null : untilPeak);
            }}
          />
          <Reserved memory={memory} />
          <Segments memory={memory} />
        </div>
      </div>
      {live && (
        <MemoryState
          entry={entry}
          memory={memory}
          bounds={slices.bounds}
          chosen={moment_us}
          onChoose={setMoment}
        />
      )}
    </>
  );
}

/** Old traces do not say which allocations were freed. */
function saysFrees({ whole }: MemorySlices): boolean {
  return whole !== null && whole.survived_bytes >= 0;
}

function useMarks(memory: DeviceMemory, { columns, view }: MemorySlices, steps: readonly StepMark[]): Marks {
  const scheme = usePage((page) => page.scheme);
  const selection = usePage((page) => page.selection);
  const shown = useShown();
  const ranges = shown?.found.ranges ?? NO_RANGES;
  const range = shown ? (ranges[shown.place] ?? null) : null;
  const scale = useMemo(
    () => (columns ? scaleOf(columns, view, memory.capacity_bytes) : NO_SCALE),
    [columns, view, memory],
  );
  return useMemo(
    () => ({ memory, steps, view, scale, scheme, selection, ranges, range }),
    [memory, steps, view, scale, scheme, selection, ranges, range],
  );
}

/** Select the step `by` places further on, or the first one. */
function selectStep(steps: readonly StepMark[], by: 1 | -1): void {
  const { selection, setSelection } = usePage.getState();
  const now = steps.findIndex((step) => step.start_us === selection?.start_us);
  const next = steps[now === -1 ? 0 : Math.min(Math.max(now + by, 0), steps.length - 1)];
  if (next) setSelection({ start_us: next.start_us, end_us: next.end_us });
}

interface ControlsProps {
  readonly slices: MemorySlices;
  readonly steps: readonly StepMark[];
  /** Can the page say what is live at a moment? */
  readonly live: boolean;
  readonly onStep: (by: 1 | -1) => void;
}

function Controls({ slices, steps, live, onStep }: ControlsProps) {
  const selection = usePage((page) => page.selection);
  const at = steps.findIndex((step) => step.start_us === selection?.start_us);
  return (
    <div className="gd-toolbar gd-memory-head">
      {slices.loading && <Loader size={12} role="status" aria-label="Loading" />}
      {selection ? (
        <Selected range={selection} />
      ) : (
        <span className="gd-muted">
          Drag or click a step: what it allocates.
          {live && " Click the curve: what was live then (below)."}
        </span>
      )}
      {steps.length > 0 && (
        <span className="gd-buttons" role="group" aria-label="Steps">
          <IconKey label="Previous step (p)" symbol="‹" disabled={at === 0} onPress={() => onStep(-1)} />
          <span className="gd-muted">{at >= 0 ? `Step ${at + 1} of ${steps.length}` : "Steps"}</span>
          <IconKey
            label="Next step (n)"
            symbol="›"
            disabled={at === steps.length - 1}
            onPress={() => onStep(1)}
          />
        </span>
      )}
      <Tooltip label="Show the whole recording (0)">
        <Button size="compact-xs" variant="default" onClick={fit}>
          Fit
        </Button>
      </Tooltip>
    </div>
  );
}
