"""The first screen where no run is named: what was diagnosed before, which folder to look at."""
