"""Engines by their own bench programs: share of the roof, by type of weights."""

from lib import engines

engines.draw("engines_roofline", "Engines against one roof")
