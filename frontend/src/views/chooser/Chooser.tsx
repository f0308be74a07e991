import { Select, type ComboboxItem } from "@mantine/core";
import { useEffect, useMemo } from "react";
import { bytes, count, date, plural } from "../../base/format";
import { inRun, levels, newerThan, newest, spanLabel } from "../../state/choose";
import { kindText } from "../../state/kinds";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { OPTIONS_SHOWN, searched } from "../parts/options";
import { Share } from "../share/Share";
import { Base } from "./Base";

/** Width of a character of a name, and of a selector without one. */
const CHARACTER_PX = 6.9;
const CHROME_PX = 46;

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** Which recording is on the page, and the way to others: of its worker, other workers, other runs. */
export function Chooser({ traces, entry }: Props) {
  const openTrace = usePage((page) => page.openTrace);
  const { runs, workers, spans } = useMemo(() => levels(traces, entry), [traces, entry]);
  const newer = newerThan(traces, entry);
  const latest = newer[0];
  const following = usePage((page) => page.following);
  const follow = usePage((page) => page.follow);
  useEffect(() => {
    if (following && latest) follow(latest.id);
  }, [following, latest, follow]);
  // The view of all ranks is of no rank in particular.
  const ofJob = usePage((page) => page.tab === "job");
  const kind = kindText(entry.kind);
  const written = entry.writing ? "being written" : `written ${date(entry.modified_s)}`;
  const open = (next: TraceEntry | null | undefined) => {
    if (next) openTrace(next.id);
  };
  return (
    <div className="gd-chooser">
      <nav className="gd-crumbs" aria-label="Recording" title={`${bytes(entry.size_bytes)}, ${written}`}>
        <Level
          label="Run"
          most={300}
          value={entry.run}
          options={[...runs].map(([run, all]) => ({ value: run, label: run, ...summary(all) }))}
          onPick={(run) => open(inRun(traces, run, entry.worker))}
        />
        {ofJob && <span className="gd-job-name">job of {count(workers.size)} ranks</span>}
        {!ofJob && (
          <>
            <Level
              label="Worker"
              most={190}
              value={entry.worker}
              options={[...workers].map(([worker, all]) => ({
                value: worker,
                label: worker || "–",
                ...summary(all),
              }))}
              onPick={(worker) => open(newest(workers.get(worker) ?? []))}
            />
            <Level
              label="Span"
              most={190}
              value={entry.id}
              options={spans.map((span) => ({
                value: span.id,
                label: spanLabel(span.span),
                ...summary([span]),
              }))}
              onPick={(id) => open(spans.find((span) => span.id === id))}
            />
            {spans.length > 1 && <Neighbors spans={spans} entry={entry} onOpen={open} />}
          </>
        )}
      </nav>
      {kind && <span className="gd-chooser-file">{kind}</span>}
      {newer.length > 0 && (
        <button
          type="button"
          className="gd-newer"
          title="Newer recordings of this worker. Click to show the newest."
          onClick={() => open(latest)}
        >
          {plural(newer.length, "newer recording")}
        </button>
      )}
      {(spans.length > 1 || following) && !ofJob && (
        <button
          type="button"
          className="gd-newer"
          aria-pressed={following}
          title="Open each newer recording of this worker as soon as it is there"
          onClick={() => follow(following ? null : (latest?.id ?? entry.id))}
        >
          {following ? "✓ Following the newest" : "Follow the newest"}
        </button>
      )}
      <span className="gd-chooser-end">
        <Base traces={traces} entry={entry} />
        <Share entry={entry} />
      </span>
    </div>
  );
}

interface NeighborsProps {
  readonly spans: readonly TraceEntry[];
  readonly entry: TraceEntry;
  readonly onOpen: (next: TraceEntry | undefined) => void;
}

/** Opens the recording of the same worker before or after this one. */
function Neighbors({ spans, entry, onOpen }: NeighborsProps) {
  const inTime = [...spans].sort((a, b) => a.modified_s - b.modified_s);
  const at = inTime.findIndex(({ id }) => id === entry.id);
  return (
    <span className="gd-neighbors">
      {([-1, 1] as const).map((by) => {
        const label = by < 0 ? "Previous recording" : "Next recording";
        return (
          <button
            key={by}
            type="button"
            className="gd-step"
            aria-label={label}
            title={label}
            disabled={inTime[at + by] === undefined}
            onClick={() => onOpen(inTime[at + by])}
          >
            {by < 0 ? "‹" : "›"}
          </button>
        );
      })}
    </span>
  );
}

interface Option extends ComboboxItem {
  /** Both are unset for the line that counts further options. */
  readonly state?: string;
  readonly note?: string;
}

/** Summarize the traces of one option: their state and a short note. */
function summary(traces: readonly TraceEntry[]): { state: string; note: string } {
  const failed = traces.filter((trace) => trace.state === "failed");
  const latest = newest(traces);
  if (failed.length > 0 && failed.length === traces.length) {
    return { state: "failed", note: failed[0]?.error?.what ?? "unreadable" };
  }
  if (failed.length > 0) return { state: "partly", note: `${failed.length} of ${traces.length} unreadable` };
  const known = latest && latest.limiter !== "unknown";
  return {
    state: latest?.state ?? "new",
    note: kindText(latest?.kind ?? "trace") || (known ? `bottleneck: ${latest.limiter}` : ""),
  };
}

interface LevelProps {
  readonly label: string;
  /** It is as wide as its text, up to this many pixels. */
  readonly most: number;
  readonly value: string;
  readonly options: readonly Option[];
  readonly onPick: (value: string) => void;
}

function Level({ label, most, value, options, onPick }: LevelProps) {
  const only = options.length === 1;
  const chosen = options.find((option) => option.value === value)?.label ?? value;
  return (
    <label className="gd-level">
      <span className="gd-unseen">{label}</span>
      {only ? (
        <b title={chosen}>{chosen}</b>
      ) : (
        <Select
          aria-label={label}
          size="xs"
          w={Math.min(most, CHARACTER_PX * chosen.length + CHROME_PX)}
          data={[...options]}
          value={value}
          limit={OPTIONS_SHOWN}
          filter={searched}
          searchable
          // Select the text, so that typing starts a search and does not edit the current name.
          onFocus={(event) => event.currentTarget.select()}
          onClick={(event) => {
            if (event.currentTarget.value === chosen) event.currentTarget.select();
          }}
          selectFirstOptionOnChange
          allowDeselect={false}
          maxDropdownHeight={420}
          nothingFoundMessage="No match"
          comboboxProps={{ width: "max-content", position: "bottom-start", shadow: "md" }}
          renderOption={({ option }) => <OptionLine option={option} />}
          onChange={(next) => {
            if (next !== null && next !== value) onPick(next);
          }}
        />
      )}
    </label>
  );
}

function OptionLine({ option }: { option: Option }) {
  return (
    <span className="gd-option">
      {option.state && <i className="gd-dot" data-state={option.state} />}
      <span className="gd-option-name">{option.label}</span>
      <span className="gd-option-note" data-state={option.state}>
        {option.note}
      </span>
    </span>
  );
}
