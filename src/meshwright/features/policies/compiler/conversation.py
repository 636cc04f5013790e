"""A compiler that runs, and the policies that answer it."""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence

from meshwright.features.policies.compiler.channel import Channel
from meshwright.features.policies.compiler.driving.processes import (
    end_group,
    ended_with_parent,
)


def converse(
    command: Sequence[str], channels: Mapping[str, Channel], seconds: float
) -> str:
    """Run a compiler and answer it on all channels; why it failed, or "".

    A policy that fails ends the compiler, which would wait for its answer.
    """
    for channel in channels.values():
        channel.open()
    process = subprocess.Popen(
        ended_with_parent(list(command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    end = os.pidfd_open(process.pid)

    def answer(channel: Channel) -> None:
        channel.converse(end)
        if channel.fault is not None:
            end_group(process)

    threads = [
        threading.Thread(target=answer, args=(channel,), daemon=True)
        for channel in channels.values()
    ]
    for thread in threads:
        thread.start()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"no object after {seconds:g} s: the policy or the compiler hangs"
    finally:
        end_group(process)
        for thread in threads:
            thread.join(1)  # a policy that hangs keeps its thread, and nothing else
        if not any(thread.is_alive() for thread in threads):
            for channel in channels.values():
                channel.close()
            os.close(end)
    return _fault(channels, process.returncode)


def _fault(channels: Mapping[str, Channel], status: int) -> str:
    """Why a compilation with policies failed, or ""."""
    for kind, channel in channels.items():
        if channel.fault is not None:
            what = f"{type(channel.fault).__name__}: {channel.fault}"
            return f"the {kind} policy failed ({what})"
    return f"the compiler ended with {status}" if status else ""
