"""Program in the place of a compiler: it asks the process that runs the build to compile.

    python -I -S stand_in.py SOCKET LANGUAGE WORDS COMPILER... ARGUMENTS...

The compiler's own command has WORDS words. It runs here if the other process says so, or
is gone. A build starts this program for every file, and importing more than modules of the
interpreter's core would cost it as much CPU time as a small file's compilation.
"""

import _socket
import posix
import sys

_MOST_BYTES = 64
"""Length of the longest answer."""


def _asked(path: str, language: str, arguments: list[str]) -> bytes:
    """The exit status of a compilation elsewhere; b"" or b"plain" if there was none."""
    mask = posix.umask(0)
    posix.umask(mask)
    variables = [name + b"=" + value for name, value in posix.environ.items()]
    words = [language, str(mask), str(len(variables))]
    parts = [_raw(word) for word in words]
    parts += [posix.getcwdb(), *variables, *map(_raw, arguments)]
    content = b"\0".join(parts)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.connect(path)
        given = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
        line.sendmsg([len(content).to_bytes(8, "little")], given)
        line.sendall(content)
        return line.recv(_MOST_BYTES)
    except OSError:
        return b""
    finally:
        line.close()


def _raw(word: str) -> bytes:
    """A word as the system has it."""
    return word.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def main() -> None:
    """End with the exit status of a compilation."""
    path, language, words = sys.argv[1:4]
    command = sys.argv[4:]
    answer = _asked(path, language, command[int(words) :])
    if answer.isdigit():
        sys.exit(int(answer))
    posix.execv(command[0], command)


if __name__ == "__main__":
    main()
