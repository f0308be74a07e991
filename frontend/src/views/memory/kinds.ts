// What memory is held for: names, words and colours, the same wherever a kind is shown.

import type { Scheme } from "../../base/causes";

interface Kind {
  readonly label: string;
  readonly meaning: string;
  readonly colour: Readonly<Record<Scheme, string>>;
}

const KINDS = {
  parameter: {
    label: "Parameters",
    meaning: "Weights of the model.",
    colour: { light: "#407cac", dark: "#5997c6" },
  },
  gradient: {
    label: "Gradients",
    meaning: "Made in the backward pass and kept for the optimizer.",
    colour: { light: "#c65a3a", dark: "#d9714f" },
  },
  optimizer_state: {
    label: "Optimizer state",
    meaning: "Made by the optimizer and kept, such as Adam's moments.",
    colour: { light: "#6457a7", dark: "#8175d5" },
  },
  activation: {
    label: "Activations",
    meaning: "Made in the forward pass and kept for the backward pass.",
    colour: { light: "#2f8f7a", dark: "#4fb39d" },
  },
  temporary: {
    label: "Temporary",
    meaning: "Freed soon after it was made.",
    colour: { light: "#e3c73a", dark: "#d9bf45" },
  },
  input: {
    label: "Input",
    meaning: "Data that was copied to the device.",
    colour: { light: "#eea5c5", dark: "#f0b3cb" },
  },
  before: {
    label: "From before",
    meaning: "Alive when the recording began: what it is cannot be told.",
    colour: { light: "#8b97a4", dark: "#6f7b89" },
  },
  unknown: {
    label: "Not known",
    meaning: "What it is held for cannot be told from this recording.",
    colour: { light: "#d8dde2", dark: "#434a54" },
  },
} as const satisfies Record<string, Kind>;

const UNKNOWN: Kind = KINDS.unknown;

export function memoryKind(name: string): Kind {
  if (Object.hasOwn(KINDS, name)) return KINDS[name as keyof typeof KINDS];
  return { ...UNKNOWN, label: name || UNKNOWN.label };
}
