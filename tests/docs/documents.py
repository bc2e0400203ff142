"""The documents' code: fenced and indented blocks of README.md and docs/*.md, and the commands in them.

A block that is not to be run has `<!-- not run: needs ... -->` above it, which no page shows.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
COMMAND = re.compile(r"(?:^|-m )labeldeconv (.*)")
INLINE = re.compile(r"`(labeldeconv [^`]+)`")


@dataclass(frozen=True)
class Block:
    """Code of a document.

    Args:
        document: path from the root of the repository.
        line: its first line there, from 1.
        kind: what stands behind the fence, '' where nothing does; 'indented' without a fence.
        not_run: why it is not run; '' where it is.
    """

    document: str
    line: int
    kind: str
    code: str
    not_run: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """All blocks of a document, in order."""
    lines, found, at = path.read_text(encoding="utf-8").splitlines(), list[Block](), 0
    name = path.relative_to(ROOT).as_posix()
    reason, blank = "", True
    while at < len(lines):
        line = lines[at]
        if fence := re.fullmatch(r"(`{3,})(\w*)", line):
            end = lines.index(fence[1], at + 1)
            found.append(Block(name, at + 2, fence[2], "\n".join(lines[at + 1 : end]) + "\n", reason))
            at, reason = end, ""
        elif blank and line.startswith("    "):
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("    ")), len(lines))
            code = "".join(f"{text[4:]}\n" for text in lines[at:end])
            found.append(Block(name, at + 1, "indented", code, reason))
            at, reason = end - 1, ""
        elif line.strip():
            reason = said[1] if (said := NOT_RUN.search(line)) else ""
        blank = not lines[at].strip()
        at += 1
    return found


@dataclass(frozen=True)
class Command:
    """A line `labeldeconv ...` of a document, as words behind the program's name."""

    place: str
    words: tuple[str, ...]
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.place} {shlex.join(self.words)}"


def commands(block: Block) -> list[Command]:
    """The package's commands in a block; lines that end in a backslash go on."""
    if block.kind not in ("sh", "bash", "console", "indented"):
        return []
    lines = re.sub(r"\\\n\s*", "", block.code).splitlines()
    found = [COMMAND.search(line) for line in lines]
    return [Command(block.place, _words(each[1]), block.not_run) for each in found if each]


def inline_commands(path: Path) -> list[Command]:
    """Commands in the text of a document, between backticks, with more than the names of a command."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    name = path.relative_to(ROOT).as_posix()
    found = (_words(each.removeprefix("labeldeconv ")) for each in INLINE.findall(text.replace("\n", " ")))
    groups = ("analyze", "cache")
    return [Command(name, words) for words in found if len(words) > 1 + (words[0] in groups)]


def _words(text: str) -> tuple[str, ...]:
    """Words as a shell has them: without comments, a trailing '&' and the dots that stand for more."""
    words = shlex.split(text.replace("\\|", "|"), comments=True)
    return tuple(word for word in words if word not in ("&", "..."))
