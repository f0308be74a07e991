import { Button, CloseButton, Loader, Tooltip } from "@mantine/core";
import { count, plural, time } from "../../base/format";
import { span, type Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import { IconKey } from "../parts/IconKey";
import { Stepper, useShown } from "../parts/ShowOnTimeline";
import { fit, goToGap, zoomBy } from "./actions";
import type { GapSteps } from "./gapSteps";

interface Props {
  readonly view: Viewport;
  readonly bounds: Viewport;
  /** False until the trace's extent is known. */
  readonly known: boolean;
  readonly gaps: GapSteps;
  readonly loading: boolean;
  /** Titles of hidden lanes. */
  readonly hidden: readonly string[];
  readonly onShowAll: () => void;
  /** Lights these places alone; null lights everything again. */
  readonly onEvidence: (ranges: readonly Viewport[] | null) => void;
  /** Pins a note; null if there are too many. */
  readonly onNote: (() => void) | null;
  readonly onHelp: () => void;
}

export function Toolbar(props: Props) {
  const { view, bounds, known, gaps, loading, hidden, onShowAll, onEvidence, onNote, onHelp } = props;
  const shown = useShown();
  const unmark = usePage((page) => page.unmark);
  return (
    <div className="gd-toolbar">
      {loading && <Loader size={12} role="status" aria-label="Loading" />}
      {shown && (
        <span
          className="gd-shown"
          role="group"
          aria-label="Shown on the timeline"
          onPointerEnter={() => onEvidence(shown.found.ranges)}
          onPointerLeave={() => onEvidence(null)}
        >
          <b title={shown.found.title}>{shown.found.title}</b>
          <Stepper found={shown.found} place={shown.place} />
          <CloseButton
            size="xs"
            aria-label="Clear the marks"
            onClick={() => {
              onEvidence(null);
              unmark();
            }}
          />
        </span>
      )}
      {hidden.length > 0 && (
        <Button
          size="compact-xs"
          variant="subtle"
          title={`Hidden: ${hidden.slice(0, 20).join(", ")}`}
          onClick={onShowAll}
        >
          Show {plural(hidden.length, "hidden lane")}
        </Button>
      )}
      {known && <span className="gd-muted gd-number">{time(span(view))} shown</span>}
      <span className="gd-buttons" role="group" aria-label="Gaps, longest first">
        <IconKey
          label="Longer gap (p)"
          symbol="‹"
          disabled={gaps.longer === null}
          onPress={() => goToGap(gaps.longer)}
        />
        <span className="gd-muted">
          {gaps.rank > 0 ? `Gap ${count(gaps.rank)} of ${count(gaps.total)}` : plural(gaps.total, "gap")}
        </span>
        <IconKey
          label={gaps.rank > 0 ? "Shorter gap (n)" : "Longest gap (n)"}
          symbol="›"
          disabled={gaps.shorter === null}
          onPress={() => goToGap(gaps.shorter)}
        />
      </span>
      <Tooltip label="Pin a note to the selected event or range, or to the middle of the view">
        <Button size="compact-xs" variant="default" disabled={!onNote} onClick={() => onNote?.()}>
          Note
        </Button>
      </Tooltip>
      <span className="gd-buttons" role="group" aria-label="Zoom">
        <IconKey label="Zoom out (-)" symbol="−" onPress={() => zoomBy(view, bounds, false)} />
        <IconKey label="Zoom in (+)" symbol="+" onPress={() => zoomBy(view, bounds, true)} />
        <Tooltip label="Show the whole trace (0)">
          <Button size="compact-xs" variant="default" onClick={fit}>
            Fit
          </Button>
        </Tooltip>
        <IconKey label="Keyboard shortcuts (?)" symbol="?" onPress={onHelp} />
      </span>
    </div>
  );
}
