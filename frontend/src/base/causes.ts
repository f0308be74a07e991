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
 * Work of the GPU is blue to violet, idle time by cause is warm or grey, in the order in which it is shown. A test
 * holds that they can be told apart by eyes that do not see red or green.
 */
const CAUSES = {
  computing: {
    label: "Computing",
    meaning: "Kernels run.",
    colour: { light: "#407cac", dark: "#5997c6" },
  },
  copying: {
    label: "Copying",
    meaning: "Copies and sets run that no kernel hides.",
    colour: { light: "#98c4eb", dark: "#aad5f7" },
  },
  communicating: {
    label: "Communicating",
    meaning: "Collectives run that no other kernel hides.",
    colour: { light: "#6457a7", dark: "#8175d5" },
  },
  input: {
    label: "Data loading",
    meaning: "The GPU waits for the data loader.",
    colour: { light: "#e8900c", dark: "#f3ac3f" },
  },
  compile: {
    label: "Compilation",
    meaning: "Code is compiled or a module is loaded while the GPU waits.",
    colour: { light: "#eea5c5", dark: "#f1b1c8" },
  },
  sync: {
    label: "Blocking call",
    meaning: "The host stands in a blocking call instead of launching work.",
    colour: { light: "#bf3e34", dark: "#e14d20" },
  },
  allocator: {
    label: "Memory allocation",
    meaning: "The host is inside cudaMalloc, cudaFree or a host allocation.",
    colour: { light: "#7c4401", dark: "#a57552" },
  },
  collective: {
    label: "Collective call",
    meaning: "The host is inside a collective call.",
    colour: { light: "#b79ad6", dark: "#c6ace9" },
  },
  python: {
    label: "Python",
    meaning: "Python code between operators runs on the host while the GPU waits.",
    colour: { light: "#e3c73a", dark: "#ecd65c" },
  },
  dispatch: {
    label: "Operators on the host",
    meaning: "Operators prepare work on the host while the GPU waits.",
    colour: { light: "#8c8a1c", dark: "#aba125" },
  },
  launch: {
    label: "Launch calls",
    meaning: "The host is inside the launch call itself.",
    colour: { light: "#b02174", dark: "#c6459b" },
  },
  latency: {
    label: "Launch latency",
    meaning: "From the launch call's return, or from the last kernel, to the start of the next.",
    colour: { light: "#475f7e", dark: "#8c939d" },
  },
  queued: {
    label: "Queued, cause not visible",
    meaning: "Work was launched already; why it did not start is not visible in this trace.",
    colour: { light: "#94a0ad", dark: "#6f7b89" },
    hatched: true,
  },
  unlinked: {
    label: "No launch recorded",
    meaning: "The trace does not say which call launched the work that ended the gap.",
    colour: { light: "#b9c1ca", dark: "#545e6e" },
    hatched: true,
  },
  profiler: {
    label: "Profiler",
    meaning: "The profiler itself kept the host busy.",
    colour: { light: "#d5cbab", dark: "#6c644d" },
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

/** What the GPU does when it is not idle. */
export const WORK: readonly string[] = ["computing", "copying", "communicating"];

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
