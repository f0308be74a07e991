import type { Report } from "../../wire/report";

/** One kind of data that a trace may contain. */
export interface Part {
  readonly name: string;
  readonly recorded: boolean;
  readonly shows: string;
  readonly how: string;
}

/** Return the kinds of data, with what each of them is good for. */
export function partsOf(report: Report): readonly Part[] {
  const recorded = report.trace?.recorded;
  return [
    {
      name: "GPU activity",
      recorded: report.devices.length > 0,
      shows: "Where GPU time goes, and why the GPU is idle.",
      how: "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    },
    {
      name: "Steps",
      recorded: recorded?.steps ?? false,
      shows: "Figures per step, slow steps, memory that grows from step to step.",
      how: "prof.step(), and a schedule",
    },
    {
      name: "Python stacks",
      recorded: recorded?.stacks ?? false,
      shows: "The functions of your code that findings are about.",
      how: "with_stack=True",
    },
    {
      name: "Shapes",
      recorded: recorded?.shapes ?? false,
      shows: "Which sizes of matmuls and convolutions are slow, and their roofline.",
      how: "record_shapes=True",
    },
    {
      name: "Memory",
      recorded: recorded?.memory ?? false,
      shows: "The memory curve, its peak, and what is never freed.",
      how: "profile_memory=True",
    },
  ];
}
