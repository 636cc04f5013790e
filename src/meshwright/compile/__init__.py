"""Choices below a plan: those that are otherwise left to the compiler."""
