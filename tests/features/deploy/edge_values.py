"""Values at the edges of dtypes, for calls of deployed models."""

import numpy as np

INF, NAN = np.inf, np.nan
LEAST, MOST = -(2**31), 2**31 - 1

PLAIN = np.float32([0.25, -0.75, 1.5, -2.25, 3.0, 0.5, -1.0, 2.0, 0.1, -0.3, 0.7, 1.1])
EDGE = np.float32([0.5, -0.5, 1.5, -2.5, -0.0, NAN, INF, -INF, 1e-30, 3e9, -3e9, 0.0])
WILD = np.float32(
    [2.5, -1.5, 88.0, -110.0, 1e20, 1e-6, -1e-6, -1e30, 1e38, 17.5, -9, 4]
)
SMALL = np.int32([1, -2, 3, -4, 5, 7, -8, 9, 2, -3, 4, 6])
INTEGERS = np.int32([LEAST, MOST, -1, 0, 1, -7, 7, LEAST, 31, 33, -33, 2])
DIVISORS = np.int32([-1, -1, 0, 0, 2, 3, -3, 2, LEAST, MOST, 5, -2])
SHIFTS = np.int32([0, 1, 31, 32, 33, -1, 5, 4, 2, 3, 40, 30])
BYTES = np.int8([-128, 127, -1, 0, 1, -7, 7, 100, -100, 2, 3, 64])
OTHER_BYTES = np.int8([-1, 1, -1, 0, 2, 3, -3, 100, 100, -2, 7, 5])
BOOLS = np.bool_([1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1])
