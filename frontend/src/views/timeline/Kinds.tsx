import { byLegend, kindFill, kindLabel } from "../../canvas/theme";
import { kindsOf, type Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";

/** The colours of what the lanes hold; those of idle time stand with the steps. */
export function Kinds({ slice }: { slice: Slice }) {
  const scheme = usePage((page) => page.scheme);
  return (
    <ul className="gd-kinds" aria-label="Colours of the timeline">
      {byLegend(kindsOf(slice)).map((kind) => (
        <li key={kind}>
          <span
            className="gd-swatch"
            style={{ background: kindFill(kind, scheme).colour }}
            aria-hidden="true"
          />
          {kindLabel(kind)}
        </li>
      ))}
    </ul>
  );
}
