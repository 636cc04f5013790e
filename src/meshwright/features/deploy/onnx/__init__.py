"""ONNX: conversion of programs in Meshwright's IR to ONNX models, op by op.

In: a `Program`. Out: the bytes of a model. Each kind of op has a converter;
`converters.py` has their table, and the other files fill it, each for a family of ops.
Begin reading at `convert.py`.
"""
