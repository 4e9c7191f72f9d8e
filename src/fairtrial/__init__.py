"""fairtrial: paired, contained, evidence-grade experiments for coding agents and the tools they drive."""

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
