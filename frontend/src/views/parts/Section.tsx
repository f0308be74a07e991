import { useId, type ReactNode } from "react";
import { GLOSSARY } from "../../base/vocabulary";

interface Props {
  readonly title: string;
  /** A term of the glossary that explains the title. */
  readonly about?: string;
  readonly aside?: ReactNode;
  readonly children: ReactNode;
  readonly className?: string;
}

/** A card with a title. `aside` is on the right of the title. */
export function Section({ title, about, aside, children, className = "" }: Props) {
  const id = useId();
  return (
    <section className={`gd-card ${className}`} aria-labelledby={id}>
      <header className="gd-card-head">
        <h2 id={id} title={about && GLOSSARY[about]}>
          {title}
        </h2>
        {aside}
      </header>
      {children}
    </section>
  );
}
