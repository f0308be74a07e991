import { ActionIcon, Button, CloseButton, Loader, Tooltip } from "@mantine/core";
import { time } from "../../base/format";
import { span, type Viewport } from "../../base/viewport";
import type { Gap } from "../../canvas/slice";
import { usePage } from "../../state/store";
import { Stepper, useShown } from "../parts/ShowOnTimeline";
import { fit, stepGap, zoomBy, zoomToSelection } from "./actions";

interface Props {
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly gaps: readonly Gap[];
  readonly loading: boolean;
}

export function Toolbar({ view, bounds, gaps, loading }: Props) {
  const selection = usePage((page) => page.selection);
  const shown = useShown();
  const setSelection = usePage((page) => page.setSelection);
  const unmark = usePage((page) => page.unmark);
  const gap = usePage((page) => page.gap);
  const at = gaps.findIndex((other) => other.gap === gap?.gap && other.device === gap.device);
  return (
    <div className="gd-toolbar">
      {loading && <Loader size={12} aria-label="Loading" />}
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
      <span className="gd-muted gd-number">{time(span(view))} shown</span>
      <span className="gd-buttons" role="group" aria-label="Gaps, longest first">
        <Key
          label="Longer gap (p)"
          symbol="‹"
          disabled={gaps.length === 0 || at === 0}
          onPress={() => {
            stepGap(gaps, -1);
          }}
        />
        <span className="gd-muted">{at >= 0 ? `Gap ${at + 1} of ${gaps.length}` : "Gaps"}</span>
        <Key
          label={at >= 0 ? "Shorter gap (n)" : "Longest gap (n)"}
          symbol="›"
          disabled={gaps.length === 0 || at === gaps.length - 1}
          onPress={() => {
            stepGap(gaps, 1);
          }}
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
