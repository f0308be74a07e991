import { ActionIcon, Loader, NativeSelect, TextInput, Tooltip } from "@mantine/core";
import type { RefObject } from "react";
import { count } from "../../base/format";
import type { Search } from "./useSearch";

const KINDS = [
  { value: "any", label: "Everything" },
  { value: "operator", label: "Operators" },
  { value: "kernel", label: "GPU work" },
  { value: "module", label: "Modules" },
  { value: "call", label: "Runtime calls" },
  { value: "range", label: "Annotations" },
  { value: "function", label: "Functions" },
];

interface Props {
  readonly search: Search;
  readonly field: RefObject<HTMLInputElement | null>;
}

/** Finds events by name: "3 of 120", and steps through the matches. */
export function SearchBox({ search, field }: Props) {
  const { wanted, set, total, at, go, setOpen } = search;
  return (
    <div className="gd-search" role="search">
      <TextInput
        ref={field}
        size="xs"
        placeholder="Find an event ( / )"
        aria-label="Find events by name"
        value={wanted.text}
        maxLength={200}
        spellCheck={false}
        error={search.problem !== ""}
        onChange={(event) => set({ text: event.currentTarget.value })}
        onFocus={() => setOpen(true)}
        onKeyDown={(event) => {
          if (event.key === "Enter") go(at + (event.shiftKey ? -1 : 1));
          if (event.key === "Escape") {
            setOpen(false);
            event.currentTarget.blur();
          }
        }}
        rightSection={search.loading ? <Loader size={12} /> : null}
      />
      <Tooltip label="Regular expression">
        <ActionIcon
          size="md"
          variant={wanted.regex ? "filled" : "default"}
          aria-label="Regular expression"
          aria-pressed={wanted.regex}
          onClick={() => set({ regex: !wanted.regex })}
        >
          .*
        </ActionIcon>
      </Tooltip>
      <NativeSelect
        size="xs"
        aria-label="Kind of events to find"
        data={KINDS}
        value={wanted.kind}
        onChange={(event) => set({ kind: event.currentTarget.value })}
      />
      {wanted.text !== "" && (
        <>
          <span
            className={search.problem ? "gd-search-problem" : "gd-muted gd-number"}
            role="status"
            title={search.problem || undefined}
          >
            {stateOf(search)}
          </span>
          <span className="gd-buttons" role="group" aria-label="Matches">
            <Step
              symbol="‹"
              label="Previous match"
              disabled={total === 0}
              onPress={() => go(at <= 0 ? total - 1 : at - 1)}
            />
            <Step symbol="›" label="Next match" disabled={total === 0} onPress={() => go(at + 1)} />
          </span>
        </>
      )}
    </div>
  );
}

interface StepProps {
  readonly symbol: string;
  readonly label: string;
  readonly disabled: boolean;
  readonly onPress: () => void;
}

function Step({ symbol, label, disabled, onPress }: StepProps) {
  return (
    <ActionIcon
      size="sm"
      variant="default"
      aria-label={label}
      title={label}
      disabled={disabled}
      onClick={onPress}
    >
      {symbol}
    </ActionIcon>
  );
}

function stateOf({ problem, loading, total, at }: Search): string {
  if (problem) return problem;
  if (at >= 0 && total > 0) return `${count(at + 1)} of ${count(total)}`;
  return loading ? "Searching…" : `${count(total)} found`;
}
