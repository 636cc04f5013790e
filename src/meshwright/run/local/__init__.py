"""Execution of device programs on this process's devices.

It also measures these devices and writes them as a machine description (`calibrate`).
"""
