"""A commit has a short subject, and a body."""

from __future__ import annotations

from tests.with_each import with_each
from tools.commit_message import MOST_CHARACTERS, SCISSORS, problems


@with_each(
    "message",
    [
        "Read twice\n\nThe first answer was cut off.\n",
        "x" * MOST_CHARACTERS + "\n\nWhy.\n# A comment\n",
        "# A template\nRead twice\n\nThe first answer was cut off.\n",
        "Merge branch 'other'\n",
        "fixup! Read twice\n",
        "# Nothing but comments\n",
    ],
)
def test_messages_that_are_fine(message: str) -> None:
    assert problems(message) == []


@with_each(
    ("message", "problem"),
    [
        ("Read twice\n", "no body"),
        ("Read twice\n\n# A comment is not a body\n", "no body"),
        (f"Read twice\n\n{SCISSORS}\n-    return 1\n", "no body"),
        ("Read twice\nThe first answer was cut off.\n", "second line"),
        ("x" * (MOST_CHARACTERS + 1) + "\n\nWhy.\n", "73 characters"),
    ],
)
def test_messages_that_are_refused(message: str, problem: str) -> None:
    (found,) = problems(message)
    assert problem in found
