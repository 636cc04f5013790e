"""Many processes as one machine: a client drives workers through one controller.

In: device programs and arrays of a client. Out: handles to arrays that stay on the
workers. `client` is what users hold; `controller` and `island` order the requests of all
clients, which `admission` has checked; `worker` executes them on its devices; `engines`
starts workers as Ray actors, or in this process. Begin reading at `client.py` and
`wire/messages.py`.
"""
