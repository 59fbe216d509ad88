"""The same with mixtures of experts."""

from lib import engines

engines.draw("engines_moe", "Mixtures of experts against one roof")
