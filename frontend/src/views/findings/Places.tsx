import { bytes, codePlace, time } from "../../base/format";
import type { Place } from "../../wire/report";
import { More } from "../parts/More";
import { PlaceName } from "../parts/PlaceName";
import { SourceLines } from "../parts/SourceLines";

/** Places to show at first. The others are one click away. */
const FIRST = 8;

/** The functions that a finding's cost comes from. */
export function Places({ places }: { places: readonly Place[] }) {
  if (places.length === 0) return null;
  return (
    <div className="gd-places">
      <h3>In the code</h3>
      <More items={places} first={FIRST}>
        {(shown) => (
          <ul>
            {shown.map((place, at) => (
              <li key={at}>
                <span className="gd-place">
                  {codePlace(place) && <PlaceName place={{ ...place, operator: "" }} />}
                  <SourceLines lines={(place.caller ?? place).candidates} />
                  <span>
                    {place.operator && <span className="gd-operator">{place.operator}</span>}
                    {around(place).map((text) => (
                      <em key={text}>{text}</em>
                    ))}
                  </span>
                </span>
                <span className="gd-number">
                  {place.bytes > 0 ? bytes(place.bytes) : place.us > 0 ? time(place.us) : ""}
                </span>
              </li>
            ))}
          </ul>
        )}
      </More>
    </div>
  );
}

/** What the place is in: "module Attention_3", "range load batch", "called from main (train.py)". */
function around({ module, range, caller }: Place): string[] {
  return [
    module && `module ${module}`,
    range && `range ${range}`,
    caller ? `called from ${codePlace(caller)}` : "",
  ].filter(Boolean);
}
