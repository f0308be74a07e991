"""GD907: the trace contains credentials: tokens, keys or passwords of whoever recorded it."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code
from tb_gpudiag.trace.credentials.removing import MOST_COUNTED
from tb_gpudiag.vocabulary.credential_forms import Name, kind_of_name
from tb_gpudiag.vocabulary.recorded import Credential
from tb_gpudiag.wording.format import in_quotes, size_bytes
from tb_gpudiag.wording.quantity import number
from tb_gpudiag.wording.vocabulary import credential_words

CODE = fix_code(__name__)

# A title has room for this many names.
MOST_NAMED = 3
# A page has room for this many.
MOST_LISTED = 20

_OF_NSYS = Fix(
    "Nsight Systems stores the whole environment in the report and its export. Remove it from the export, "
    "and do not share the .nsys-rep file. If others could read them, revoke these credentials. Record with "
    "an environment that has none.",
    f"{CODE['nsys']}\n",
)


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """List the credentials that reading the file came across."""
    found = facts.trace.credentials
    unsearched_bytes = facts.trace.unsearched_bytes
    unsearched = (
        f"{size_bytes(unsearched_bytes)} of the text were not searched: too many words there could announce "
        "a credential"
    )
    if not found and unsearched_bytes:
        return CannotTell(unsearched)
    if not found:
        return Clear("no tokens, keys or passwords found")
    most_first = sorted(found.items(), key=lambda item: (not _is_telling(item[0]), -item[1]))
    names = list(dict.fromkeys(_called(credential) for credential, _ in most_first))
    named = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        named += f" and {len(names) - MOST_NAMED} more"
    total = sum(found.values())
    places = f"{at_least(total, unsearched_bytes)}{number(total, 'place')}"
    return Finding(
        title=f"The trace contains credentials: {named}",
        summary=(
            f"A tool wrote them into the file, in {places}. Everyone who can read the log "
            "directory, or gets a copy of the trace, can use them. This report, its cache and its logs "
            "contain only the names." + (f" {unsearched}." if unsearched_bytes else "")
        ),
        fix=_OF_NSYS
        if facts.trace.metadata.recorder == "nsys"
        else Fix(
            "Copy the trace without them, and replace it with the copy. If others could read it, revoke "
            "these credentials. Do not write the process's environment into traces: record the variables "
            "you need.",
            f"{CODE['scrub']}\n",
        ),
        evidence=[
            Evidence(credential_words(credential), number(times, "place"))
            for credential, times in most_first[:MOST_LISTED]
        ],
    )


def at_least(places: int, unsearched_bytes: int) -> str:
    """Return `at least `, if the search for credentials ended before the trace did."""
    return "at least " if unsearched_bytes or places >= MOST_COUNTED else ""


def _is_telling(credential: Credential) -> bool:
    """Return whether the name says what the value is. The name of an event does not."""
    return kind_of_name(credential.name) is not Name.NOT


def _called(credential: Credential) -> str:
    if _is_telling(credential) or not credential.form:
        return in_quotes(credential.name, 60) if credential.name else "others"
    return credential.form


RULE = Rule("GD907", "secrets_recorded", "Credentials recorded", check, topic="secrets")
