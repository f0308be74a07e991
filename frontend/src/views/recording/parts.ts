import { OPTIONS } from "../../base/vocabulary";
import type { Report } from "../../wire/report";

/** One kind of data that a trace may contain. */
export interface Part {
  readonly name: string;
  readonly recorded: boolean;
  readonly shows: string;
  readonly how: string;
}

/** What records each part of a trace, with the recorder that wrote this one. */
export function optionsOf(report: Report): Readonly<Record<keyof typeof OPTIONS.torch, string>> {
  return OPTIONS[report.trace?.recorder ?? "torch"];
}

/** Is it a report of Nsight Systems? */
export function fromNsys(report: Report): boolean {
  return report.trace?.recorder === "nsys";
}

/** Is it a trace of torch.profiler? Only events of these can be copied. */
export function fromTorch(report: Report): boolean {
  return (report.trace?.recorder ?? "torch") === "torch";
}

/** Return the kinds of data, with what each of them is good for. */
export function partsOf(report: Report): readonly Part[] {
  const recorded = report.trace?.recorded;
  const how = optionsOf(report);
  return [
    {
      name: "GPU activity",
      recorded: report.devices.length > 0,
      shows: "Where GPU time goes, and why the GPU is idle.",
      how: how.gpu,
    },
    {
      name: "Steps",
      recorded: recorded?.steps ?? false,
      shows: "Per-step figures, slow steps, memory that grows from step to step.",
      how: how.steps,
    },
    {
      name: "Python stacks",
      recorded: recorded?.stacks ?? false,
      shows: "Which of your functions the findings are about.",
      how: how.stacks,
    },
    {
      name: "Shapes",
      recorded: recorded?.shapes ?? false,
      shows: "Which sizes of matmuls and convolutions are slow, and their roofline.",
      how: how.shapes,
    },
    {
      name: "Memory",
      recorded: recorded?.memory ?? false,
      shows: "The memory curve, its peak, and what is never freed.",
      how: how.memory,
    },
  ];
}
