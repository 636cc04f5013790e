"""Values that rematerialization keeps."""

from meshwright.program.ir import Op, Value
from meshwright.program.rewrite.rematerialization import with_transposes


def test_the_transpose_of_a_kept_value_is_kept_too():
    """Else the barrier stands between them, and XLA stores the value in both layouts."""
    given, made = (Value((8, 2), "float32") for _ in range(2))
    turned = Value((2, 8), "float32")
    ops = (
        Op("exp", (given,), (made,)),
        Op("transpose", (made,), (turned,), {"permutation": (1, 0)}),
    )
    assert with_transposes(ops, {made}) == {made, turned}
    assert with_transposes(ops, {given}) == {given}
