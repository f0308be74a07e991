import { createContext, useContext, useEffect, useRef, type MouseEvent, type ReactNode } from "react";
import { usePage } from "../../state/store";
import type { RowPlaces } from "../../state/rowPlaces";

const Context = createContext<ReadonlyMap<object, RowPlaces>>(new Map());

/** Gives the rows inside it their places on the timeline. */
export const RowPlacesProvider = Context.Provider;

/** The row whose places are currently marked on the timeline, and the index of the current place. */
export function useShown(): { readonly found: RowPlaces; readonly place: number } | null {
  const known = useContext(Context);
  const shown = usePage((page) => page.shown);
  const found = shown && [...known.values()].find(({ row }) => row === shown.row);
  return found && found.ranges.length > shown.place ? { found, place: shown.place } : null;
}

/** Go to one of a row's places. The first follows the last. */
function goTo({ row, ranges, view }: RowPlaces, wanted: number): void {
  const place = (wanted + ranges.length) % ranges.length;
  const range = ranges[place];
  if (!range) return;
  usePage.getState().show({ row, place }, range, view);
}

function useRow(of: object) {
  const found = useContext(Context).get(of);
  const place = usePage(({ shown }) => (found && shown?.row === found.row ? shown.place : null));
  return { found, place };
}

interface Props {
  /** The report's message that this element belongs to. */
  readonly of: object;
}

/** A button that shows a row on the timeline: first its most expensive place, with further clicks the others. */
export function ShowOnTimeline({ of }: Props) {
  const { found, place } = useRow(of);
  return found ? <Stepper found={found} place={place} /> : null;
}

interface StepperProps {
  readonly found: RowPlaces;
  /** Null if this row is not the one that is shown. */
  readonly place: number | null;
}

export function Stepper({ found, place }: StepperProps) {
  const { title, ranges } = found;
  const steps = place !== null && ranges.length > 1;
  const label = place === null ? "Show" : steps ? `${place + 1} of ${ranges.length}` : "Shown";
  const element = useRef<HTMLSpanElement>(null);
  // Bring the row of a link, or the one that Back returns to, into sight.
  const here = useRef(place !== null);
  useEffect(() => {
    if (here.current) element.current?.scrollIntoView({ block: "nearest" });
  }, []);
  const action = place === null ? "Show on the timeline" : steps ? "Show the next place" : "Show again";
  return (
    <span className="gd-stepper" ref={element} data-shown={place !== null || undefined}>
      {steps && <Arrow symbol="‹" label="Previous place" onPress={() => goTo(found, place - 1)} />}
      <button
        type="button"
        className="gd-link"
        title={action}
        aria-label={place === null ? `Show on the timeline: ${title}` : `${title}: ${label}. ${action}`}
        onClick={() => goTo(found, place === null ? 0 : place + 1)}
      >
        {label}
      </button>
      {steps && <Arrow symbol="›" label="Next place" onPress={() => goTo(found, place + 1)} />}
    </span>
  );
}

function Arrow({ symbol, label, onPress }: { symbol: string; label: string; onPress: () => void }) {
  return (
    <button type="button" className="gd-step" aria-label={label} title={label} onClick={onPress}>
      {symbol}
    </button>
  );
}

interface RowProps extends Props {
  readonly children: ReactNode;
  /** Replaces the action of a click on the row. */
  readonly onPress?: (found: RowPlaces) => void;
}

/** A table row with a "Show" button in its last cell. A click anywhere on the row does the same. */
export function LinkedRow({ of, children, onPress }: RowProps) {
  const { found, place } = useRow(of);
  const onClick = (event: MouseEvent) => {
    // Do not react to buttons, or while the user selects text to copy it.
    const selecting = window.getSelection()?.isCollapsed === false;
    if (!found || selecting || (event.target as Element).closest("button, summary")) return;
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

/** The header of the column that LinkedRow adds. */
export function ShowTitle() {
  return (
    <th scope="col" className="gd-show">
      <span className="gd-unseen">On the timeline</span>
    </th>
  );
}
