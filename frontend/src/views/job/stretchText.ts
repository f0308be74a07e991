import { partLabel } from "../../base/causes";
import { count, percent, time } from "../../base/format";
import {
  collectivesIn,
  type Lane,
  type LaneCollective,
  type Spot,
  type Stretch,
} from "../../canvas/rankLanes";
import { rankName } from "./rankName";

/** Shares that a sentence lists. */
const LISTED = 4;

/** The rank's number; with a star if its clock cannot be compared. */
export function laneName({ rank, aligned }: Lane): string {
  return rankName(rank) + (aligned ? "" : "*");
}

/** What a rank does in a stretch: "Computing 80.0%, Copying 20.0%". */
export function partsText({ parts, start_us, end_us }: Stretch): string {
  return [...parts]
    .sort((a, b) => b.us - a.us)
    .slice(0, LISTED)
    .map(({ name, us }) => `${partLabel(name)} ${percent(us, end_us - start_us)}`)
    .join(", ");
}

export function kindText({ count: number, kind }: LaneCollective): string {
  return kind || `${count(number)} collectives`;
}

/** The stretch that is pointed at, in words. */
export function stretchText(lanes: readonly Lane[], spot: Spot): string {
  const lane = lanes[spot.lane];
  const stretch = lane?.stretches[spot.stretch];
  if (!lane || !stretch) return "";
  const { start_us, end_us } = stretch;
  const own = collectivesIn(lane, stretch);
  const parts = partsText(stretch);
  const collective = own
    ? ` ${kindText(own)}: waits ${time(own.waiting_us)}, transfers ${time(own.transfer_us)}${
        own.waited_for_us > 0 ? `; the other ranks wait ${time(own.waited_for_us)} in total for this one` : ""
      }.`
    : "";
  return `Rank ${laneName(lane)}, at ${time(start_us)}, for ${time(end_us - start_us)}${parts && ": "}${parts}.${collective}`;
}
