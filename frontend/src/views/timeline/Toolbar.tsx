import { ActionIcon, Button, CloseButton, Loader, Tooltip } from "@mantine/core";
import { count, plural, time } from "../../base/format";
import { span, type Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import { Stepper, useShown } from "../parts/ShowOnTimeline";
import { fit, zoomBy, zoomToSelection } from "./actions";
import type { GapSteps } from "./useGapSteps";

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
  readonly onHelp: () => void;
}

export function Toolbar({ view, bounds, known, gaps, loading, hidden, onShowAll, onHelp }: Props) {
  const selection = usePage((page) => page.selection);
  const shown = useShown();
  const setSelection = usePage((page) => page.setSelection);
  const unmark = usePage((page) => page.unmark);
  return (
    <div className="gd-toolbar">
      {loading && <Loader size={12} role="status" aria-label="Loading" />}
      {selection && (
        <>
          <span className="gd-muted">Selected {time(span(selection))}</span>
          <Button
            size="compact-xs"
            variant="light"
            onClick={() => {
              zoomToSelection();
            }}
          >
            Zoom to selection
          </Button>
          <Button
            size="compact-xs"
            variant="subtle"
            onClick={() => {
              setSelection(null);
            }}
          >
            Clear
          </Button>
        </>
      )}
      {shown && (
        <span className="gd-shown" role="group" aria-label="Shown on the timeline">
          <b title={shown.found.title}>{shown.found.title}</b>
          <Stepper found={shown.found} place={shown.place} />
          <CloseButton size="xs" aria-label="Clear the marks" onClick={unmark} />
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
        <Key
          label="Longer gap (p)"
          symbol="‹"
          disabled={gaps.longer === null}
          onPress={() => gaps.longer?.()}
        />
        <span className="gd-muted">
          {gaps.rank > 0 ? `Gap ${count(gaps.rank)} of ${count(gaps.total)}` : plural(gaps.total, "gap")}
        </span>
        <Key
          label={gaps.rank > 0 ? "Shorter gap (n)" : "Longest gap (n)"}
          symbol="›"
          disabled={gaps.shorter === null}
          onPress={() => gaps.shorter?.()}
        />
      </span>
      <span className="gd-buttons" role="group" aria-label="Zoom">
        <Key
          label="Zoom out (-)"
          symbol="−"
          onPress={() => {
            zoomBy(view, bounds, false);
          }}
        />
        <Key
          label="Zoom in (+)"
          symbol="+"
          onPress={() => {
            zoomBy(view, bounds, true);
          }}
        />
        <Tooltip label="Show the whole trace (0)">
          <Button size="compact-xs" variant="default" onClick={fit}>
            Fit
          </Button>
        </Tooltip>
        <Key label="Keys of the timeline (?)" symbol="?" onPress={onHelp} />
      </span>
    </div>
  );
}

interface KeyProps {
  readonly label: string;
  readonly symbol: string;
  readonly disabled?: boolean;
  readonly onPress: () => void;
}

function Key({ label, symbol, disabled = false, onPress }: KeyProps) {
  return (
    <Tooltip label={label}>
      <ActionIcon size="sm" variant="default" aria-label={label} disabled={disabled} onClick={onPress}>
        {symbol}
      </ActionIcon>
    </Tooltip>
  );
}
