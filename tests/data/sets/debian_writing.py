"""A small Debian archive on disk: two indices."""

import gzip

from labeldeconv.data.sets.debian import debian_files

PACKAGES = """\
Package: game
Version: 1
Depends: libgame (>= 1), editor | nano, missing
Suggests: game-data
Section: games
Description: a short one
Description-md5: m1
Tag: role::program, use::gameplaying,
 interface::x11

Package: libgame
Source: game (1.0)
Section: contrib/libs
Description-md5: m2

Package: game-data
Source: game
Enhances: game
Pre-Depends: libgame:any
Section: games
Description-md5: m1

Package: nano
Provides: editor
Section: editors
Description: only the synopsis
Description-md5: m9

Package: vi
Provides: editor (= 2), other
Recommends: vi, game
Section: editors
Description-md5: m2

Package: game
Version: 2
Section: oldlibs
"""
TRANSLATION = """\
Package: game
Description-md5: m1
Description-en: a game of cards
 The game game is about
 cards.
 .
 * second paragraph

Package: libgame
Description-md5: m2
Description-en: library
"""


def write(folder, packages=PACKAGES, translation=TRANSLATION):
    folder.mkdir(exist_ok=True)
    (folder / "Packages").write_text(packages)
    (folder / "Translation-en.gz").write_bytes(gzip.compress(translation.encode()))
    return debian_files(folder)
