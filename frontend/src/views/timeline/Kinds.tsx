import { legend } from "../../canvas/theme";
import { kindsOf, type Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";

/** The colours of what the lanes hold; those of idle time stand with the steps. */
export function Kinds({ slice }: { slice: Slice }) {
  const scheme = usePage((page) => page.scheme);
  return (
    <ul className="gd-kinds" aria-label="Colours of the timeline">
      {[...legend(kindsOf(slice), scheme)].map(([colour, label]) => (
        <li key={colour}>
          <span className="gd-swatch" style={{ background: colour }} aria-hidden="true" />
          {label}
        </li>
      ))}
    </ul>
  );
}
