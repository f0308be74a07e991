// The kinds of memory, with their labels and colors.

import type { Scheme } from "../../base/causes";

interface Kind {
  readonly label: string;
  readonly meaning: string;
  readonly color: Readonly<Record<Scheme, string>>;
}

const KINDS = {
  parameter: {
    label: "Parameters",
    meaning: "Weights of the model.",
    color: { light: "#407cac", dark: "#5997c6" },
  },
  gradient: {
    label: "Gradients",
    meaning: "Allocated in the backward pass and kept for the optimizer.",
    color: { light: "#c65a3a", dark: "#d9714f" },
  },
  optimizer_state: {
    label: "Optimizer state",
    meaning: "Allocated by the optimizer and kept, such as Adam's moments.",
    color: { light: "#6457a7", dark: "#8175d5" },
  },
  activation: {
    label: "Activations",
    meaning: "Allocated in the forward pass and kept for the backward pass.",
    color: { light: "#2f8f7a", dark: "#4fb39d" },
  },
  temporary: {
    label: "Temporary",
    meaning: "Freed soon after it was allocated.",
    color: { light: "#e3c73a", dark: "#d9bf45" },
  },
  input: {
    label: "Input",
    meaning: "Data copied to the device.",
    color: { light: "#eea5c5", dark: "#f0b3cb" },
  },
  before: {
    label: "Allocated before recording",
    meaning: "Live when the recording began. The recording does not show what it is for.",
    color: { light: "#8b97a4", dark: "#6f7b89" },
  },
  unknown: {
    label: "Unknown",
    meaning: "The recording does not show what it is for.",
    color: { light: "#d8dde2", dark: "#434a54" },
  },
} as const satisfies Record<string, Kind>;

const UNKNOWN: Kind = KINDS.unknown;

export function memoryKind(name: string): Kind {
  if (Object.hasOwn(KINDS, name)) return KINDS[name as keyof typeof KINDS];
  return { ...UNKNOWN, label: name || UNKNOWN.label };
}
