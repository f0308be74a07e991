import { useElementSize } from "@mantine/hooks";
import { useMemo, useRef, useState } from "react";
import { rowsOf } from "../../canvas/rows";
import { withMemory } from "../../canvas/slice";
import type { Viewport } from "../../base/viewport";
import { useGap } from "../../state/queries";
import { usePage } from "../../state/store";
import { useEvent, useMemoryCurves } from "../../state/timelineQuery";
import type { ReportProps } from "../parts/reportProps";
import { Problem } from "../status/Problem";
import { Drawer } from "./Drawer";
import { gapSteps, longestGap } from "./gapSteps";
import { Help } from "./Help";
import { IdleAgainstBase } from "./IdleAgainstBase";
import { Kinds } from "./Kinds";
import { Lanes } from "./Lanes";
import { NoteForm } from "./Notes";
import { Minimap } from "./Minimap";
import { SearchBox } from "./SearchBox";
import { selectedOf, spotsOf } from "./selected";
import { StepChoice } from "./StepChoice";
import { Toolbar } from "./Toolbar";
import { useKeys } from "./useKeys";
import { useNotes } from "./useNotes";
import { useLaneChoices } from "./useLaneChoices";
import { useSearch } from "./useSearch";
import { useSlices } from "./useSlices";
import { VisibleTable } from "./VisibleTable";

/** The activity of GPUs and host over time, as tall as the window. */
export default function TimelineView({ entry, report }: ReportProps) {
  const wanted = usePage((page) => page.view);
  const openedGap = usePage((page) => page.gap);
  const openedEvent = usePage((page) => page.event);
  const { ref, width } = useElementSize<HTMLDivElement>();
  const slices = useSlices(entry, wanted, Math.round(width));
  const { view, overview: whole, best: finest } = slices;
  const bounds = slices.bounds ?? view;
  const curves = useMemoryCurves(entry, report.memory[0], slices.tile, slices.width_px);
  const overview = useMemo(() => whole && withMemory(whole, curves), [whole, curves]);
  const best = useMemo(() => finest && withMemory(finest, curves), [finest, curves]);
  const lanes = useLaneChoices();
  const rows = useMemo(
    () => (overview ? rowsOf(overview, slices.depths, lanes.choices) : null),
    [overview, slices.depths, lanes.choices],
  );
  const event = useEvent(entry, openedEvent);
  const selected = useMemo(() => selectedOf(event.data, overview), [event.data, overview]);
  const longest = useMemo(() => (overview ? longestGap(overview) : undefined), [overview]);
  const gaps = gapSteps(report.devices, longest, openedGap, useGap(entry, openedGap).data);
  const field = useRef<HTMLInputElement>(null);
  const search = useSearch(entry, { view, bounds, overview, reveal: lanes.reveal });
  const found = useMemo(() => spotsOf(search.events, overview), [search.events, overview]);
  const selection = usePage((page) => page.selection);
  const hasPanel = openedGap !== null || openedEvent !== null || search.open || selection !== null;
  const [focus, setFocus] = useState<Viewport | null>(null);
  // Of the finding under the pointer, while it is there.
  const [evidence, setEvidence] = useState<readonly Viewport[] | null>(null);
  const lit = useMemo(() => evidence ?? (focus && [focus]), [evidence, focus]);
  const notes = useNotes(entry.id);
  const [help, setHelp] = useState(false);
  useKeys({
    view,
    bounds,
    selected: event.data?.event ?? null,
    gaps,
    search: () => field.current?.focus(),
    help: () => setHelp(true),
  });
  return (
    <section className="gd-card gd-timeline gd-tl" aria-label="Timeline" id="gd-timeline">
      <h2 className="gd-unseen">Timeline</h2>
      <div className="gd-tl-bar">
        <SearchBox search={search} field={field} />
        <StepChoice steps={whole?.steps ?? []} focus={focus} onFocus={setFocus} />
        <Toolbar
          view={view}
          bounds={bounds}
          known={overview !== null}
          gaps={gaps}
          loading={slices.loading}
          onEvidence={setEvidence}
          onNote={
            notes.add &&
            (() => {
              const start_us = event.data?.event?.start_us ?? selection?.start_us;
              notes.add?.(start_us ?? (view.start_us + view.end_us) / 2);
            })
          }
          hidden={rows?.hidden ?? []}
          onShowAll={lanes.showAll}
          onHelp={() => setHelp(true)}
        />
      </div>
      {notes.open && <NoteForm key={notes.open.at_us} note={notes.open} notes={notes} />}
      <IdleAgainstBase entry={entry} />
      <Minimap
        overview={overview}
        view={view}
        bounds={bounds}
        findings={report.findings}
        onEvidence={setEvidence}
        perPart={search.perPart}
      />
      <div className="gd-timeline-body" data-panel={hasPanel || undefined}>
        <Lanes
          slice={best}
          rows={rows}
          view={view}
          bounds={bounds}
          gapCount={gaps.total}
          measure={ref}
          width={Math.round(width)}
          selected={selected}
          found={found}
          lit={lit}
          notes={notes}
          lanes={lanes}
        />
        <Drawer entry={entry} search={search} event={event} reveal={lanes.reveal} overview={overview} />
      </div>
      <VisibleTable slice={best} view={view} />
      {overview && <Kinds slice={overview} />}
      {slices.problem && <Problem problem={slices.problem} />}
      <Help open={help} onClose={setHelp} />
    </section>
  );
}
