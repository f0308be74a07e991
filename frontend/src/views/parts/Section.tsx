import { useId, type ReactNode, type Ref } from "react";

interface Props {
  readonly title: string;
  readonly aside?: ReactNode;
  readonly children: ReactNode;
  readonly className?: string;
  readonly ref?: Ref<HTMLElement>;
}

/** A card with a title. `aside` is on the right of the title. */
export function Section({ title, aside, children, className = "", ref }: Props) {
  const id = useId();
  return (
    <section className={`gd-card ${className}`} aria-labelledby={id} ref={ref}>
      <header className="gd-card-head">
        <h2 id={id}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}
