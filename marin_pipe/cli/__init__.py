"""One command surface for `marin-pipe` and for every experiment script."""
