// What time goes to: the names, the words and the colours, the same wherever a cause is shown.

export type Scheme = "light" | "dark";

export interface Cause {
  readonly label: string;
  readonly meaning: string;
  readonly colour: Readonly<Record<Scheme, string>>;
  /** Hatched: time for which the trace does not show who is to blame. */
  readonly hatched?: true;
}

/**
 * Work of the GPU is blue to violet, idle time by cause is warm or grey, in the order in which it is shown. Neighbours
 * differ in lightness too, so that the colours can be told apart without red and green.
 */
const CAUSES = {
  computing: {
    label: "Computing",
    meaning: "Kernels run.",
    colour: { light: "#3f7cac", dark: "#4f93c9" },
  },
  copying: {
    label: "Copying",
    meaning: "Copies and sets run that no kernel hides.",
    colour: { light: "#9cc5e3", dark: "#a9d3f2" },
  },
  communicating: {
    label: "Communicating",
    meaning: "Collectives run that no other kernel hides.",
    colour: { light: "#6457a6", dark: "#8678cf" },
  },
  input: {
    label: "Input",
    meaning: "The GPU waits for the data loader.",
    colour: { light: "#e8900c", dark: "#f2a02b" },
  },
  compile: {
    label: "Compilation",
    meaning: "Code is compiled or a module is loaded while the GPU waits.",
    colour: { light: "#eea5c5", dark: "#f0b1ce" },
  },
  sync: {
    label: "Synchronisation",
    meaning: "The host stands in a blocking call instead of launching work.",
    colour: { light: "#c0392b", dark: "#dc5a4b" },
  },
  allocator: {
    label: "Allocator",
    meaning: "The host is inside cudaMalloc, cudaFree or a host allocation.",
    colour: { light: "#7b4a1e", dark: "#a8713f" },
  },
  collective: {
    label: "Collective",
    meaning: "The host is inside a collective call.",
    colour: { light: "#b79ad6", dark: "#c7aee4" },
  },
  python: {
    label: "Python",
    meaning: "Python code between operators runs while the GPU waits.",
    colour: { light: "#e3c73a", dark: "#ecd65c" },
  },
  dispatch: {
    label: "Dispatch",
    meaning: "Operators prepare work on the host while the GPU waits.",
    colour: { light: "#8c8a1c", dark: "#aaa72f" },
  },
  launch: {
    label: "Launch",
    meaning: "The host is inside the launch call itself.",
    colour: { light: "#b0277a", dark: "#d24c9c" },
  },
  latency: {
    label: "Latency",
    meaning: "From the launch call's return, or from the last kernel, to the start of the next.",
    colour: { light: "#5f6b7a", dark: "#8793a3" },
  },
  queued: {
    label: "Queued",
    meaning: "Work was launched already; why it did not start is not visible in this trace.",
    colour: { light: "#94a0ad", dark: "#6f7b89" },
    hatched: true,
  },
  unlinked: {
    label: "Unlinked",
    meaning: "The trace does not say which call launched the work that ended the gap.",
    colour: { light: "#b9c1ca", dark: "#555f6b" },
    hatched: true,
  },
  profiler: {
    label: "Profiler",
    meaning: "The profiler itself kept the host busy.",
    colour: { light: "#d3c9b4", dark: "#6b6351" },
    hatched: true,
  },
} as const satisfies Record<string, Cause>;

const UNKNOWN: Cause = {
  label: "Other",
  meaning: "A cause that this page does not know.",
  colour: { light: "#a8adb3", dark: "#686d74" },
  hatched: true,
};

const ORDER = Object.keys(CAUSES);

export function cause(name: string): Cause {
  return Object.hasOwn(CAUSES, name)
    ? CAUSES[name as keyof typeof CAUSES]
    : { ...UNKNOWN, label: name || "Other" };
}

/** The place of a cause in every legend; unknown ones come last. */
export function rank(name: string): number {
  const at = ORDER.indexOf(name);
  return at === -1 ? ORDER.length : at;
}

/** A CSS background for a cause. */
export function paint(name: string, scheme: Scheme): string {
  const { colour, hatched } = cause(name);
  if (!hatched) return colour[scheme];
  const stripe = scheme === "light" ? "rgb(255 255 255 / 45%)" : "rgb(0 0 0 / 35%)";
  return `repeating-linear-gradient(135deg, ${stripe} 0 2px, transparent 2px 5px), ${colour[scheme]}`;
}

const TRIGGERS: Readonly<Record<string, string>> = {
  drained: "a blocking call had emptied the queue",
  starved: "the host never got ahead of the GPU",
  queued: "work was queued, and did not start",
  unknown: "what led to it is not visible in this trace",
};

export function trigger(name: string): string {
  return TRIGGERS[name] ?? name;
}
