import type { ReactNode } from "react";

interface Props {
  readonly url: string;
  readonly children: ReactNode;
}

/** A link that opens in a new tab. Anything but https stays text: a javascript: URL would run in the page. */
export function ExternalLink({ url, children }: Props) {
  if (!url.startsWith("https://")) return children;
  return (
    <a href={url} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  );
}
