import { NativeSelect } from "@mantine/core";
import { time } from "../../base/format";
import { aired, type Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import type { StepMark } from "../../wire/report";

interface Props {
  readonly steps: readonly StepMark[];
  readonly focus: Viewport | null;
  readonly onFocus: (step: Viewport | null) => void;
}

/** A longer list does not help to choose. */
const MOST = 500;

/** Shows one step: zooms to it, and dims all others. */
export function StepChoice({ steps, focus, onFocus }: Props) {
  if (steps.length < 2) return null;
  const at = steps.findIndex(({ start_us }) => start_us === focus?.start_us);
  return (
    <NativeSelect
      size="xs"
      className="gd-step-choice"
      aria-label="Step to show"
      value={String(at)}
      data={[
        { value: "-1", label: "All steps" },
        ...steps.slice(0, MOST).map((step, index) => ({
          value: String(index),
          label: `${step.name} · ${time(step.end_us - step.start_us)}`,
        })),
      ]}
      onChange={(event) => {
        const step = steps[Number(event.currentTarget.value)];
        onFocus(step ?? null);
        usePage.getState().setView(step ? aired({ start_us: step.start_us, end_us: step.end_us }) : null);
      }}
    />
  );
}
