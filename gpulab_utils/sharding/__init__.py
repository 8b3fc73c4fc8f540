"""What do more cards give? Bytes of each rank, bytes on the wire, and when it pays.

Arithmetic (memory, wire, pays) needs no torch; `kills` ends ranks of a real training, and
`rehearsal` counts what many ranks would do, in one process and without memory.
"""
