"""Programs of the zoo: training, sampling and tracing."""
