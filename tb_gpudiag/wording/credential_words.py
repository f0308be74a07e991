"""What a credential in a trace is called."""

from __future__ import annotations

from tb_gpudiag.vocabulary.recorded import Credential


def described(credential: Credential) -> str:
    """`HF_TOKEN (Hugging Face token)`: the name, and what the value looks like."""
    if not credential.name or not credential.form:
        return credential.name or credential.form or "others"
    return f"{credential.name} ({credential.form})"
