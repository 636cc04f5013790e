"""Many processes as one machine: a client drives workers through one controller.

In: device programs and arrays of a client. Out: handles to arrays that stay on the
workers. `client.py` is what users hold; `controller` checks and orders the requests of all
clients, and replaces workers that died (`controller/island.py`); `worker` executes the
requests on its devices; `engines` starts workers as Ray actors, or in this process;
`replicate` runs a step of one replica on many. Begin reading at `client.py` and
`wire/messages.py`.
"""
