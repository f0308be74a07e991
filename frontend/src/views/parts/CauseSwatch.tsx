import { paint } from "../../base/causes";
import { usePage } from "../../state/store";

/** The color of a cause, as in the bars and on the timeline. */
export function CauseSwatch({ name }: { name: string }) {
  const scheme = usePage((page) => page.scheme);
  return <span className="gd-swatch" style={{ background: paint(name, scheme) }} aria-hidden="true" />;
}
