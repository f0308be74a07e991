import { legend } from "../../canvas/theme";
import { kindsOf, type Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";

/** The legend of the lanes, and help for the pointer. The legend of idle time is in the section about steps. */
export function Kinds({ slice }: { slice: Slice }) {
  const scheme = usePage((page) => page.scheme);
  return (
    <div className="gd-timeline-foot">
      <ul className="gd-kinds" aria-label="Legend of the timeline">
        {[...legend(kindsOf(slice), scheme)].map(([color, label]) => (
          <li key={color}>
            <span className="gd-swatch" style={{ background: color }} aria-hidden="true" />
            {label}
          </li>
        ))}
      </ul>
      <span>
        Click an event or a gap for its details. Drag to pan, Shift-drag to select, wheel to zoom. Press ? for
        all keys.
      </span>
    </div>
  );
}
