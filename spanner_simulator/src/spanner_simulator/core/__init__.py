"""The simulated database without any I/O: time and chance are passed in, one caller at a time.

Nothing here locks, because the server calls it from one thread only; that is also what makes a
commit atomic and every reader see the same commit order.
"""
