import { CloseButton } from "@mantine/core";
import { useEffect, useRef } from "react";
import { count, exactTime, time } from "../../base/format";
import { functionFirst } from "../../base/names";
import { kindLabel } from "../../canvas/theme";
import { NotInFile } from "./NotInFile";
import type { Search } from "./useSearch";

/** The matches of the search, a page at a time, in the order of time. */
export function Results({ search }: { search: Search }) {
  const { events, first, total, at, go, setOpen } = search;
  const current = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    current.current?.scrollIntoView({ block: "nearest" });
  }, [at]);
  const last = first + events.length;
  return (
    <aside className="gd-gap" aria-label="Matches">
      <CloseButton className="gd-gap-close" size="sm" aria-label="Close" onClick={() => setOpen(false)} />
      {search.problem ? (
        <p className="gd-muted">{search.problem}</p>
      ) : (
        <h3>
          {count(total)}{" "}
          <span>
            {total === 1 ? "match" : "matches"} for “{search.wanted.text}”
          </span>
        </h3>
      )}
      <NotInFile />
      {events.length < total && (
        <p className="gd-muted">
          {count(first + 1)} to {count(last)}{" "}
          {first > 0 && (
            <button type="button" className="gd-link" onClick={() => go(first - 1)}>
              Earlier
            </button>
          )}{" "}
          {last < total && (
            <button type="button" className="gd-link" onClick={() => go(last)}>
              Later
            </button>
          )}
        </p>
      )}
      <ol className="gd-results">
        {events.map((event, index) => {
          const here = first + index === at;
          return (
            <li key={event.number}>
              <button
                type="button"
                ref={here ? current : null}
                aria-current={here || undefined}
                title={event.name}
                onClick={() => go(first + index)}
              >
                <b>{functionFirst(event.name)}</b>
                <span className="gd-muted">
                  {kindLabel(event.kind)} · {time(event.duration_us)} · at {exactTime(event.start_us)}
                </span>
              </button>
            </li>
          );
        })}
      </ol>
    </aside>
  );
}
