import { paint } from "../../base/causes";
import { percent, time } from "../../base/format";
import { term } from "../../base/terms";
import { MFU_PARTS, PALETTE, type Scheme } from "../../base/vocabulary";
import { usePage } from "../../state/store";
import { MfuPart_Part, type Mfu, type MfuPart } from "../../wire/report";
import { Section } from "../parts/Section";

/** Where the stated peak of the GPU goes: what is lost, one part after the other, and what is left for the model. */
export function Peak({ mfu }: { mfu: Mfu | undefined }) {
  const scheme = usePage((page) => page.scheme);
  if (!mfu || mfu.parts.length === 0) return null;
  const window_us = mfu.parts.reduce((sum, { us }) => sum + us, 0);
  const shares = mfu.parts.map(({ us }) => us / window_us);
  const left = shares.map((_, at) => 1 - shares.slice(0, at + 1).reduce((sum, share) => sum + share, 0));
  return (
    <Section title="Where the GPU's peak goes" about="mfu" aside={<About mfu={mfu} window_us={window_us} />}>
      <table className="gd-peak">
        <caption className="gd-unseen">Parts of the step window at the stated peak</caption>
        <tbody>
          {mfu.parts.map((part, at) => (
            <tr
              key={at}
              title={[`${time(part.us)}, ${percent(part.us, window_us)}`, explanation(part)]
                .filter(Boolean)
                .join(": ")}
              data-part={part.part}
            >
              <th scope="row">{label(part)}</th>
              <td>{part.part === "model" ? "MFU" : percent(part.us, window_us)}</td>
              <td aria-hidden="true">
                <span
                  style={{
                    marginLeft: `${100 * Math.max(left[at] ?? 0, 0)}%`,
                    width: `${100 * (shares[at] ?? 0)}%`,
                    background: fill(part, scheme),
                  }}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function About({ mfu, window_us }: { mfu: Mfu; window_us: number }) {
  const again = percent(mfu.recomputing_us, window_us);
  const hfu =
    mfu.hfu > mfu.mfu ? `with what backward repeats ${percent(mfu.hfu)} (HFU), in ${again} of the time` : "";
  return <span className="gd-muted">{hfu}</span>;
}

function label({ part }: MfuPart): string {
  return term(MFU_PARTS, part)?.word ?? part;
}

function explanation({ part }: MfuPart): string | undefined {
  return term(MFU_PARTS, part)?.explanation;
}

function fill({ part }: MfuPart, scheme: Scheme): string {
  if (part === MfuPart_Part.model) return paint("computing", scheme);
  if (part === MfuPart_Part.communicating || part === MfuPart_Part.copying) return paint(part, scheme);
  if (part === MfuPart_Part.unknown) return paint("unrecorded", scheme);
  if (part === MfuPart_Part.idle) return PALETTE.other[scheme];
  return PALETTE.warning[scheme];
}
