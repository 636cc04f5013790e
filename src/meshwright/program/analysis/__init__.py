"""Facts about programs that several wings need: live bytes, accumulators, input ranges."""
