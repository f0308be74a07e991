import { Button } from "@mantine/core";
import { time } from "../../base/format";
import { span, type Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import { zoomToSelection } from "./actions";

/** The length of the selected range, and what to do with it. */
export function Selected({ range }: { range: Viewport }) {
  const setSelection = usePage((page) => page.setSelection);
  return (
    <>
      <span className="gd-muted">Selected {time(span(range))}</span>
      <Button size="compact-xs" variant="light" onClick={zoomToSelection}>
        Zoom to selection
      </Button>
      <Button size="compact-xs" variant="subtle" onClick={() => setSelection(null)}>
        Clear
      </Button>
    </>
  );
}
