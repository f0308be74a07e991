import { legend } from "../../canvas/theme";
import { kindsOf, type Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";

/** The colours of what the lanes hold, those of idle time stand with the steps; and what the pointer does. */
export function Kinds({ slice }: { slice: Slice }) {
  const scheme = usePage((page) => page.scheme);
  return (
    <div className="gd-timeline-foot">
      <ul className="gd-kinds" aria-label="Colours of the timeline">
        {[...legend(kindsOf(slice), scheme)].map(([colour, label]) => (
          <li key={colour}>
            <span className="gd-swatch" style={{ background: colour }} aria-hidden="true" />
            {label}
          </li>
        ))}
      </ul>
      <span>Drag moves, on the ruler or with Shift it selects. The wheel zooms. Click a gap or a step.</span>
    </div>
  );
}
