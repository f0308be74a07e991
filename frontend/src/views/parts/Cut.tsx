interface Props {
  readonly text: string;
  readonly className?: string;
  /** A file, with or without folders. */
  readonly isPath?: boolean;
}

/** As long as what is never cut off: the end of a kernel's name. */
const END = 24;

/** A file's name and its line are not cut off if they are no longer than this. */
const FILE = 48;

/** A text in one line. Where it is too long it is cut in the middle, because the end tells paths and kernels apart. */
export function Cut({ text, className = "", isPath = false }: Props) {
  if (text.length <= END) return <span className={className}>{text}</span>;
  const file = text.lastIndexOf("/") + 1;
  const cut = (isPath || file > 0) && text.length - file <= FILE ? file : text.length - END;
  return (
    <span className={`gd-cut ${className}`}>
      {cut > 0 && <span>{text.slice(0, cut)}</span>}
      <span>{text.slice(cut)}</span>
    </span>
  );
}
