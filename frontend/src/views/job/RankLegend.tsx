import { paint, partLabel, rank as orderOf } from "../../base/causes";
import { WAITING_ALPHA } from "../../canvas/ranks";
import type { Lane } from "../../canvas/rankLanes";
import { usePage } from "../../state/store";
import { CauseSwatch } from "../parts/CauseSwatch";

/** What the colors of the lanes mean. */
export function RankLegend({ lanes }: { lanes: readonly Lane[] }) {
  const scheme = usePage((page) => page.scheme);
  const names = new Set(
    lanes.flatMap(({ stretches }) => stretches.flatMap(({ parts }) => parts.map(({ name }) => name))),
  );
  const background = paint("communicating", scheme);
  return (
    <ul className="gd-lanes-legend">
      {[...names]
        .sort((a, b) => orderOf(a) - orderOf(b))
        .map((name) => (
          <li key={name}>
            <CauseSwatch name={name} />
            {partLabel(name)}
          </li>
        ))}
      <li>
        <span className="gd-swatch" data-strip style={{ background, opacity: WAITING_ALPHA }} />
        Lower strip: waiting in a collective
      </li>
      <li>
        <span className="gd-swatch" data-strip style={{ background }} />
        Lower strip: transferring
      </li>
      <li>▲ The other ranks wait for this one</li>
    </ul>
  );
}
