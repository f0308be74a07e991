import type { ReactNode } from "react";
import { isPending } from "../../state/queries";
import type { Problem as ProblemMessage } from "../../wire/report";
import { Notice } from "../parts/Notice";
import { Problem } from "./Problem";
import { ProgressCard } from "./ProgressCard";

interface State {
  readonly state: string;
  readonly progress: number;
  readonly stage: string;
  readonly error: ProblemMessage | undefined;
}

interface Props<T> {
  /** What the server works on: "Comparing the recordings". */
  readonly doing: string;
  readonly failed: string;
  readonly state: State | undefined;
  readonly error: Error | null;
  readonly answer: T | undefined;
  readonly children: (answer: T) => ReactNode;
}

/** An answer about several traces: the answer, how far it is, or why there is none. */
export function Answer<T>({ doing, failed, state, error, answer, children }: Props<T>) {
  const pending = !error && isPending(state?.state ?? "queued");
  return (
    <>
      {pending && (
        <ProgressCard
          title={state?.state === "queued" ? "Waiting" : doing}
          detail={state?.stage ?? ""}
          share={state?.progress ?? 0}
        />
      )}
      {error && (
        <Notice tone="error">
          {failed}: {error.message}.
        </Notice>
      )}
      {state?.state === "failed" && state.error && <Problem title={failed} problem={state.error} />}
      {answer !== undefined && children(answer)}
    </>
  );
}
