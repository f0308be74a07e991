"""Credentials of a trace in words: which they are, and that something made of the trace is without them."""

from __future__ import annotations

from tb_gpudiag.vocabulary.recorded import Credential
from tb_gpudiag.wording.format import count, in_quotes


def credential_words(credential: Credential) -> str:
    """`“HF_TOKEN” (Hugging Face token)`: the name, and what the value looks like."""
    if not credential.name:
        return credential.form or "others"
    return in_quotes(credential.name, 60) + (f" ({credential.form})" if credential.form else "")


def left_out(places: int, what: str, at_least: str = "") -> str:
    """Say how many credentials a trace has, and that `what`, which is made of it, is without them.

    at_least: "at least ", if there may be more places.
    """
    found = f"{at_least}{count(places, 'place')}"
    return f"The trace has credentials, in {found}. {what} is without those that were found."
