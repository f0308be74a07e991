import { Select, type ComboboxItem } from "@mantine/core";
import { useMemo } from "react";
import { bytes, count, date } from "../../base/format";
import { inRun, levels, newerThan, newest, spanLabel } from "../../state/choose";
import { kindText } from "../../state/kinds";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { OPTIONS_SHOWN, searched } from "../parts/options";
import { PinBase } from "./PinBase";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

export function Chooser({ traces, entry }: Props) {
  const openTrace = usePage((page) => page.openTrace);
  const { runs, workers, spans } = useMemo(() => levels(traces, entry), [traces, entry]);
  const newer = newerThan(traces, entry);
  const kind = kindText(entry.kind);
  const written = entry.writing ? "being written" : `written ${date(entry.modified_s)}`;
  const file = [kind, bytes(entry.size_bytes), written].filter((part) => part !== "").join(" · ");
  const open = (next: TraceEntry | null) => {
    if (next) openTrace(next.id);
  };
  return (
    <div className="gd-chooser">
      <Level
        label="Run"
        width={320}
        value={entry.run}
        options={[...runs].map(([run, all]) => ({ value: run, label: run, ...summary(all) }))}
        onPick={(run) => {
          open(inRun(traces, run, entry.worker));
        }}
      />
      <Level
        label="Worker"
        width={250}
        value={entry.worker}
        options={[...workers].map(([worker, all]) => ({
          value: worker,
          label: worker || "–",
          ...summary(all),
        }))}
        onPick={(worker) => {
          open(newest(workers.get(worker) ?? []));
        }}
      />
      <Level
        label="Span"
        width={230}
        value={entry.id}
        options={spans.map((span) => ({ value: span.id, label: spanLabel(span.span), ...summary([span]) }))}
        onPick={(id) => {
          open(spans.find((span) => span.id === id) ?? null);
        }}
      />
      {newer.length > 0 && (
        <button
          type="button"
          className="gd-link gd-newer"
          title="Recordings of this worker that were written after this one. Click to show the newest."
          onClick={() => {
            open(newer[0] ?? null);
          }}
        >
          {count(newer.length)} newer {newer.length === 1 ? "recording" : "recordings"}
        </button>
      )}
      {traces.length > 1 && <PinBase entry={entry} />}
      <span className="gd-chooser-file" title={file}>
        {file}
      </span>
    </div>
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
  const known = latest?.limiter && latest.limiter !== "unknown";
  return {
    state: latest?.state ?? "new",
    note: kindText(latest?.kind ?? "") || (known ? `limited by ${latest.limiter}` : ""),
  };
}

interface LevelProps {
  readonly label: string;
  readonly width: number;
  readonly value: string;
  readonly options: readonly Option[];
  readonly onPick: (value: string) => void;
}

function Level({ label, width, value, options, onPick }: LevelProps) {
  const only = options.length === 1;
  const chosen = options.find((option) => option.value === value)?.label ?? value;
  return (
    <label className="gd-level" data-only={only || undefined}>
      <span>{label}</span>
      {only ? (
        <b title={chosen}>{chosen}</b>
      ) : (
        <Select
          aria-label={label}
          size="xs"
          w={width}
          data={[...options]}
          value={value}
          limit={OPTIONS_SHOWN}
          filter={searched}
          searchable
          // Select the text, so that typing starts a search and does not edit the current name.
          onFocus={(event) => {
            event.currentTarget.select();
          }}
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
