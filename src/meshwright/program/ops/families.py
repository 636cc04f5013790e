"""Imports every family of ops, so that all of them are registered."""

import meshwright.program.ops.arithmetic.contraction
import meshwright.program.ops.arithmetic.convolution
import meshwright.program.ops.arithmetic.cumulative
import meshwright.program.ops.arithmetic.elementwise
import meshwright.program.ops.arithmetic.fft
import meshwright.program.ops.arithmetic.halo
import meshwright.program.ops.arithmetic.linalg
import meshwright.program.ops.arithmetic.monoid
import meshwright.program.ops.arithmetic.ragged
import meshwright.program.ops.arithmetic.random
import meshwright.program.ops.arithmetic.reduction
import meshwright.program.ops.arithmetic.scatter_window
import meshwright.program.ops.arithmetic.sorting
import meshwright.program.ops.arithmetic.window
import meshwright.program.ops.control_flow
import meshwright.program.ops.movement.callbacks
import meshwright.program.ops.movement.dynamic
import meshwright.program.ops.movement.gather
import meshwright.program.ops.movement.indexing
import meshwright.program.ops.movement.pallas
import meshwright.program.ops.movement.pieces
import meshwright.program.ops.movement.placement
import meshwright.program.ops.movement.reshape
import meshwright.program.ops.movement.scatter
import meshwright.program.ops.movement.shape  # noqa: F401
