import { Loader } from "@mantine/core";

/** Before the first list of traces has come. */
export function Searching({ failed }: { failed: boolean }) {
  if (failed) return null;
  return (
    <div className="gd-searching" role="status">
      <Loader size="sm" /> Looking for traces in the log directory…
    </div>
  );
}
