import { Button, Select } from "@mantine/core";
import { comparable } from "../../state/kinds";
import { traceLabel } from "../../state/comparison";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { OPTIONS_SHOWN, searched } from "../parts/options";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
  readonly base: TraceEntry | undefined;
}

/** Which recordings are compared: the base is chosen here, the candidate with the selectors above. */
export function BaseChoice({ traces, entry, base }: Props) {
  const pinBase = usePage((page) => page.pinBase);
  const compare = usePage((page) => page.compare);
  const options = traces
    .filter(({ kind }) => comparable(kind, entry.kind))
    .map((trace) => ({ value: trace.id, label: traceLabel(trace) }));
  return (
    <section className="gd-card gd-compared" aria-label="What is compared">
      <label>
        <span className="gd-muted">Base</span>
        <Select
          aria-label="Base"
          size="xs"
          w={420}
          data={options}
          value={base?.id ?? null}
          placeholder="Choose the recording to compare with"
          limit={OPTIONS_SHOWN}
          filter={searched}
          searchable
          // Select the text, so that typing starts a search and does not edit the current name.
          onFocus={(event) => event.currentTarget.select()}
          selectFirstOptionOnChange
          allowDeselect={false}
          maxDropdownHeight={420}
          nothingFoundMessage="No match"
          comboboxProps={{ width: "max-content", position: "bottom-start", shadow: "md" }}
          onChange={(next) => {
            if (next !== null) pinBase(next);
          }}
        />
      </label>
      <span>
        <span className="gd-muted">Candidate</span> <b title={traceLabel(entry)}>{traceLabel(entry)}</b>
      </span>
      {base && (
        <Button size="compact-xs" variant="default" onClick={() => compare(entry.id, base.id)}>
          Swap
        </Button>
      )}
    </section>
  );
}
