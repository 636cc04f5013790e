"""Brings every family's rules into the table."""

import meshwright.rules.callbacks
import meshwright.rules.contraction
import meshwright.rules.convolution
import meshwright.rules.cumulative
import meshwright.rules.dynamic
import meshwright.rules.elementwise
import meshwright.rules.factors
import meshwright.rules.fft
import meshwright.rules.gather
import meshwright.rules.halo
import meshwright.rules.indexing
import meshwright.rules.linalg
import meshwright.rules.monoid
import meshwright.rules.pallas
import meshwright.rules.placement
import meshwright.rules.ragged
import meshwright.rules.random
import meshwright.rules.reduction
import meshwright.rules.reshape
import meshwright.rules.scatter
import meshwright.rules.scatter_window
import meshwright.rules.shape
import meshwright.rules.sorting
import meshwright.rules.window  # noqa: F401
