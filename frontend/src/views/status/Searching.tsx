import { Loader } from "@mantine/core";

/** Shown until the first list of traces arrives. */
export function Searching({ failed }: { failed: boolean }) {
  if (failed) return null;
  return (
    <div className="gd-searching" role="status">
      <Loader size="sm" /> Looking for traces in the log directory…
    </div>
  );
}
