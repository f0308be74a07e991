import { Fragment } from "react";

/** A name that breaks after its separators, where people would break it. */
export function Separated({ name }: { name: string }) {
  return name.split(/(?<=[/_.:-])(?=[^/_.:-])/).map((part, at) => (
    <Fragment key={at}>
      {at > 0 && <wbr />}
      {part}
    </Fragment>
  ));
}
