"""Random calls to a controller that no well-behaved client makes."""

from dataclasses import dataclass

from meshwright.features.cluster.wire.messages import Call, Define, Free, Put, Transfer

JUNK = (None, -1, 2**70, "x", b"x", [], {}, object, 1.5, True, (1, "a"), (-1,), "", ())
METHODS = ("stop", "__init__", "_session", "island", "log", "", None, 7, "start")
ARGUMENTS = {"beat": 0, "close": 0, "status": 0, "release": 1, "resize": 1, "slice": 1,
             "submit": 2, "fetch_all": 2, "wait": 2}  # fmt: skip
"""Arguments of each method after the session."""


@dataclass
class Attacker:
    """A client with a token and a session, which has one program and one array.

    session, devices: its own. foreign: the devices of another client's slice, and its
        numbers of arrays and programs, of which the attacker has none.
    num_sent: submissions made so far.
    """

    session: str
    devices: tuple[int, ...]
    foreign: tuple[int, ...]
    num_sent: int = 1

    def call(self, rng):
        """A method and its arguments, which the controller must refuse."""
        kinds = (self._outsider, self._stranger, self._malformed, self._request)
        return rng.choice(kinds)(rng)

    def _outsider(self, rng):
        """A call of one who has no session."""
        if rng.random() < 0.3:
            return "open", (rng.choice(["", "toke", "token-a ", *JUNK[:4]]),)
        if rng.random() < 0.3:
            return rng.choice(METHODS), (self.session,)
        session = rng.choice(["0" * 32, *JUNK])
        method = rng.choice(list(ARGUMENTS))
        return method, (session, *[0] * ARGUMENTS[method])

    def _stranger(self, rng):
        """A question with junk, or with the wrong number of arguments."""
        method = rng.choice(
            [
                "release", "slice", "fetch_all", "wait", "resize", "submit",
                "shutdown",
            ]
        )  # fmt: skip
        if method == "shutdown":
            return method, (self.session,)
        if rng.random() < 0.3:
            return method, (
                self.session,
                *[1] * (ARGUMENTS[method] + rng.choice([-1, 1])),
            )
        bad = [each for each in JUNK if each != ()]
        if method == "submit":  # a replay, or one far ahead
            number = rng.choice([*range(self.num_sent), 2**70, *bad])
            return method, (self.session, number, [Free((1,))])
        if method == "wait":
            return method, (self.session, self.num_sent, rng.choice([5, 77, *bad]))
        if method == "fetch_all":
            junk = rng.choice([5, [5], [1, 77], [1, None], *bad[:4]])
            return method, (self.session, self.num_sent, junk)
        if method == "resize":  # the attacker is no operator
            return method, (self.session, rng.choice([1, 2**70, *bad]))
        return method, (self.session, rng.choice(bad))

    def _malformed(self, rng):
        """A submission that is no list of requests, or whose fields have wrong types."""
        pick = lambda: rng.choice(JUNK)  # noqa: E731
        kinds = {Call: 3, Put: 3, Define: 7, Transfer: 4, Free: 2}
        kind = rng.choice(list(kinds))
        request = kind(*(pick() for _ in range(kinds[kind])))
        if kind is Free and type(request.arrays) is type(request.programs) is tuple:
            request = Free((-1,))
        if kind is Put and type(request.array) is int and request.array > 0:
            request = Put(-1, None, 8)
        return self._submission(rng.choice([[request], [pick()], None, 3, request]))

    def _request(self, rng):
        """A request in the right form that names what is not the attacker's."""
        new, theirs = rng.randrange(100, 200), rng.randrange(5, 9)
        request = rng.choice(
            [
                Call(0, (theirs,), (new,)),
                Call(theirs, (1,), (new,)),
                Call(0, (1,) * rng.choice([0, 2, 1000]), (new,)),
                Call(0, (1,), (new,) * rng.choice([0, 2])),
                Call(0, (1,), (1,)),
                Call(2**80, (1,), (new,)),
                Transfer(0, (0,), (theirs,), (new,)),
                Transfer(theirs, (0,), (1,), (new,)),
                Transfer(0, (rng.randrange(1, 2**70),), (1,), (new,)),
                Transfer(0, (0, 0), (1,), (new,)),
                Transfer(0, (0, 0), (1, 1), (new, new)),
                Define(1, b"", self.foreign, (), (8,), (8,), ()),
                Define(1, b"", (2**70,), (), (8,), (8,), ()),
                Define(
                    1, b"", self.devices, (rng.randrange(1, 2**70),), (8,), (8,), ()
                ),
                Put(1, None, 8),
                Put(new, None, 2**70),
            ]
        )
        return self._submission([request])

    def _submission(self, requests):
        number = self.num_sent
        self.num_sent += 1
        return "submit", (self.session, number, requests)
