"""One model each: data in, an image of any point and its distance to that image out."""

from permea.models.encoding import ShrunkWarning
from permea.models.kahm import KernelAffineHullMachine

__all__ = ["KernelAffineHullMachine", "ShrunkWarning"]
