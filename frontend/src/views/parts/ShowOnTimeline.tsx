import { createContext, useContext, type MouseEvent, type ReactNode } from "react";
import { usePage } from "../../state/store";
import type { Whereabouts } from "../../state/whereabouts";
import { MEMORY_ID } from "../memory/id";
import { TIMELINE_ID } from "../timeline/id";

const Context = createContext<ReadonlyMap<object, Whereabouts>>(new Map());

/** What the rows below it tell of is found on the timeline by this. */
export const WhereaboutsProvider = Context.Provider;

/** The row whose places are marked on the timeline now. */
export function useShown(): { readonly found: Whereabouts; readonly place: number } | null {
  const known = useContext(Context);
  const shown = usePage((page) => page.shown);
  const found = shown && [...known.values()].find(({ row }) => row === shown.row);
  return found && found.ranges.length > shown.place ? { found, place: shown.place } : null;
}

/** Goes to one of a row's places: after the last comes the first. */
function goTo({ row, ranges }: Whereabouts, wanted: number): void {
  const place = (wanted + ranges.length) % ranges.length;
  const range = ranges[place];
  if (!range) return;
  usePage.getState().show({ row, place }, range);
  // Moves nothing while the timeline is in sight; a file of memory alone has only the memory view.
  const where = document.getElementById(TIMELINE_ID) ?? document.getElementById(MEMORY_ID);
  where?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}

function useRow(of: object) {
  const found = useContext(Context).get(of);
  const place = usePage(({ shown }) => (found && shown?.row === found.row ? shown.place : null));
  return { found, place };
}

interface Props {
  /** The report's message that is shown beside it. */
  readonly of: object;
}

/** Shows on the timeline where this is: the first press goes to where it cost most, further ones to its other places. */
export function ShowOnTimeline({ of }: Props) {
  const { found, place } = useRow(of);
  return found ? <Stepper found={found} place={place} /> : null;
}

interface StepperProps {
  readonly found: Whereabouts;
  /** Null while another row is shown, or none. */
  readonly place: number | null;
}

export function Stepper({ found, place }: StepperProps) {
  const { title, ranges } = found;
  const steps = place !== null && ranges.length > 1;
  const label = place === null ? "Show" : steps ? `${place + 1} of ${ranges.length}` : "Shown";
  const says = place === null ? "Show on the timeline" : steps ? "Show the next place" : "Show it again";
  return (
    <span className="gd-stepper" data-shown={place !== null || undefined}>
      {steps && (
        <Arrow
          sign="‹"
          says="Previous place"
          onPress={() => {
            goTo(found, place - 1);
          }}
        />
      )}
      <button
        type="button"
        className="gd-link"
        title={says}
        aria-label={place === null ? `Show on the timeline: ${title}` : `${title}: ${label}. ${says}`}
        onClick={() => {
          goTo(found, place === null ? 0 : place + 1);
        }}
      >
        {label}
      </button>
      {steps && (
        <Arrow
          sign="›"
          says="Next place"
          onPress={() => {
            goTo(found, place + 1);
          }}
        />
      )}
    </span>
  );
}

function Arrow({ sign, says, onPress }: { sign: string; says: string; onPress: () => void }) {
  return (
    <button type="button" className="gd-step" aria-label={says} title={says} onClick={onPress}>
      {sign}
    </button>
  );
}

interface RowProps extends Props {
  readonly children: ReactNode;
  /** What a click on the row does instead of showing it on the timeline. */
  readonly onPress?: (found: Whereabouts) => void;
}

/** A row of a table whose last cell shows it on the timeline; a click anywhere on the row does the same. */
export function LinkedRow({ of, children, onPress }: RowProps) {
  const { found, place } = useRow(of);
  const onClick = (event: MouseEvent) => {
    // A name that is being marked to be copied, and the buttons, mean what they always mean.
    const marked = window.getSelection()?.isCollapsed === false;
    if (!found || marked || (event.target as Element).closest("button, summary")) return;
    if (onPress) onPress(found);
    else goTo(found, place === null ? 0 : place + 1);
  };
  return (
    <tr className={found && "gd-linked"} data-shown={place !== null || undefined} onClick={onClick}>
      {children}
      <td className="gd-show">{found && <Stepper found={found} place={place} />}</td>
    </tr>
  );
}

/** The title of the column that LinkedRow adds. */
export function ShowTitle() {
  return (
    <th scope="col" className="gd-show">
      <span className="gd-unseen">On the timeline</span>
    </th>
  );
}
